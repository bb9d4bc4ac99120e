#include "shard/layout.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>

#include "models/linear_stack.h"

namespace veil {
namespace {

ModelShape stack(int64_t width, int64_t layers) {
  return linear_stack(width, layers).shape(2, at::kFloat, false);
}

// Parameters of every awkward size in three blocks; the last block reads the first one's weight
// again.
ModelShape tied() {
  ModelShape shape;
  for (const std::vector<int64_t>& dims : {std::vector<int64_t>{5, 3}, {1}, {8}, {7, 7}, {3}}) {
    shape.params.push_back({fmt::format("p{}", shape.params.size()), dims, {}});
  }
  for (const std::vector<ParamId>& params : {std::vector<ParamId>{0, 1}, {2, 3}, {4, 0}}) {
    BlockShape block;
    block.name = fmt::format("block.{}", shape.blocks.size());
    block.params = params;
    shape.blocks.push_back(block);
  }
  shape.loss.name = "loss";
  return shape;
}

std::map<ParamId, int64_t> model_wide_places(const Layout& layout) {
  std::map<ParamId, int64_t> places;
  for (const UnitLayout& unit : layout.units) {
    for (const ParamSlot& slot : unit.slots) {
      EXPECT_TRUE(places.emplace(slot.param, unit.base + slot.offset).second)
          << "parameter " << slot.param << " lies twice";
    }
  }
  return places;
}

TEST(Layout, AParametersModelWideIndexDependsNeitherOnTheWorldNorOnTheWrap) {
  for (const ModelShape& shape : {tied(), stack(13, 5), stack(1, 1), stack(64, 3)}) {
    const auto places = model_wide_places(make_layout(shape, WrapPolicy::module, 0, 1));
    EXPECT_EQ(places.size(), shape.params.size());
    for (const WrapPolicy wrap : {WrapPolicy::module, WrapPolicy::size, WrapPolicy::none}) {
      for (const int world : {1, 2, 3, 4, 7, 64}) {
        EXPECT_EQ(model_wide_places(make_layout(shape, wrap, 300, world)), places)
            << name_of(wrap) << " world " << world;
      }
    }
  }
}

TEST(Layout, ShardsAreEqualAlignedAndHoldEverythingForWorldsThatDivideNothing) {
  for (const ModelShape& shape : {tied(), stack(13, 5), stack(1, 1)}) {
    for (const WrapPolicy wrap : {WrapPolicy::module, WrapPolicy::size, WrapPolicy::none}) {
      for (const int world : {1, 2, 3, 5, 64}) {
        const Layout layout = make_layout(shape, wrap, 300, world);
        EXPECT_EQ(layout.world, world);
        for (const UnitLayout& unit : layout.units) {
          EXPECT_EQ(unit.padded_numel, world * unit.shard_numel);
          EXPECT_EQ(unit.shard_numel % kAlignElements, 0);
          EXPECT_GE(unit.padded_numel, unit.numel);
          EXPECT_LT(unit.padded_numel - unit.numel, world * kAlignElements)
              << "more padding than alignment asks for";
        }
      }
    }
  }
}

TEST(Layout, ParametersAreAlignedAndDoNotOverlap) {
  for (const ModelShape& shape : {tied(), stack(13, 5)}) {
    for (const WrapPolicy wrap : {WrapPolicy::module, WrapPolicy::size, WrapPolicy::none}) {
      int64_t base = 0;
      for (const UnitLayout& unit : make_layout(shape, wrap, 300, 3).units) {
        EXPECT_EQ(unit.base, base);
        int64_t end = 0;
        for (const ParamSlot& slot : unit.slots) {
          EXPECT_EQ(slot.offset % kAlignElements, 0);
          EXPECT_GE(slot.offset, end);
          EXPECT_LT(slot.offset - end, kAlignElements);
          EXPECT_EQ(slot.numel, shape.params[slot.param].numel());
          end = slot.offset + slot.numel;
        }
        EXPECT_GE(unit.numel, end);
        EXPECT_LT(unit.numel - end, kAlignElements);
        base += unit.numel;
      }
    }
  }
}

TEST(Layout, ATiedParameterLiesOnceWhereItIsFirstUsedAndBothItsBlocksNameThatUnit) {
  const Layout layout = make_layout(tied(), WrapPolicy::module, 0, 2);
  ASSERT_EQ(layout.units.size(), 3u);
  EXPECT_EQ(layout.unit_of_param, (std::vector<int>{0, 0, 1, 1, 2}));
  ASSERT_EQ(layout.units[2].slots.size(), 1u);
  EXPECT_EQ(layout.units[2].slots[0].param, 4);
  // the last is the loss's
  EXPECT_EQ(layout.units_of_block, (std::vector<std::vector<int>>{{0}, {1}, {0, 2}, {}}));
}

TEST(Layout, WrapBySizeClosesAUnitOnceItHoldsTheParametersAskedFor) {
  const ModelShape shape = stack(13, 5);  // 182 parameters per layer
  auto blocks = [&](WrapPolicy wrap, int64_t min_params) {
    std::vector<std::vector<int>> found;
    for (const UnitLayout& unit : make_layout(shape, wrap, min_params, 2).units)
      found.push_back(unit.blocks);
    return found;
  };
  using Blocks = std::vector<std::vector<int>>;
  EXPECT_EQ(blocks(WrapPolicy::module, 1'000'000), (Blocks{{0}, {1}, {2}, {3}, {4}}));
  EXPECT_EQ(blocks(WrapPolicy::none, 0), (Blocks{{0, 1, 2, 3, 4}}));
  EXPECT_EQ(blocks(WrapPolicy::size, 0), (Blocks{{0}, {1}, {2}, {3}, {4}}));
  EXPECT_EQ(blocks(WrapPolicy::size, 182), (Blocks{{0}, {1}, {2}, {3}, {4}}));
  EXPECT_EQ(blocks(WrapPolicy::size, 183), (Blocks{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(blocks(WrapPolicy::size, 364), (Blocks{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(blocks(WrapPolicy::size, 365), (Blocks{{0, 1, 2}, {3, 4}}));
  EXPECT_EQ(blocks(WrapPolicy::size, 1'000'000), (Blocks{{0, 1, 2, 3, 4}}));
}

TEST(Layout, UnitsAreNamedAfterTheirFirstAndLastBlock) {
  const Layout layout = make_layout(stack(13, 5), WrapPolicy::size, 300, 1);
  EXPECT_EQ(layout.units[0].name, "layers.0..layers.1");
  EXPECT_EQ(layout.units[2].name, "layers.4");
}

}  // namespace
}  // namespace veil
