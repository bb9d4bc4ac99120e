#include "run/replay_facts.h"

#include <gtest/gtest.h>

namespace veil {
namespace {

std::vector<ParamShape> two_params() {
  std::vector<ParamShape> params(2);
  params[0].name = "a";
  params[0].dims = {3, (1 << 19) + 1};  // two pieces
  params[1].name = "b";
  params[1].dims = {4};
  return params;
}

// Element i of parameter p is i % 1000 + p, but for one.
InitialWeights filled(ParamId other = 9, int64_t place = 0, bool second_by_rule = false) {
  InitialWeights initial;
  initial.fill = [=](ParamId id, int64_t first, const Tensor& out) {
    if (second_by_rule && id == 1) return false;
    for (int64_t i = 0; i < out.numel(); ++i)
      out[i].fill_(static_cast<double>((first + i) % 1000 + id) +
                   (id == other && first + i == place ? 0.5 : 0));
    return true;
  };
  return initial;
}

// Of the second parameter and the first one's last piece only, so that the test is quick.
Sha256Digest digest_of(const InitialWeights& initial, std::vector<ParamShape> params,
                       DType storage = at::kFloat) {
  params[0].dims = {3, 5};
  return weights_digest(initial, params, storage);
}

TEST(WeightsDigest, DependsOnEveryValueNameShapeAndType) {
  const Sha256Digest digest = digest_of(filled(), two_params());
  EXPECT_EQ(digest_of(filled(), two_params()), digest);
  EXPECT_NE(digest_of(filled(0, 14), two_params()), digest);
  EXPECT_NE(digest_of(filled(1, 0), two_params()), digest);
  EXPECT_NE(digest_of(filled(9, 0, true), two_params()), digest);
  EXPECT_NE(digest_of(filled(), two_params(), at::kDouble), digest);
  std::vector<ParamShape> params = two_params();
  params[1].name = "c";
  EXPECT_NE(digest_of(filled(), params), digest);
  params = two_params();
  params[1].dims = {2, 2};
  EXPECT_NE(digest_of(filled(), params), digest);
  params.pop_back();
  EXPECT_NE(digest_of(filled(), params), digest);
}

TEST(WeightsDigest, SeesWhatIsRoundedAwayAsTheSame) {
  // bf16 has eight bits: 2.5 and 2 differ, 512.5 and 512 do not
  EXPECT_NE(digest_of(filled(1, 1), two_params(), at::kBFloat16),
            digest_of(filled(), two_params(), at::kBFloat16));
  InitialWeights large, same;
  large.fill = [](ParamId, int64_t, const Tensor& out) {
    out.fill_(512.5);
    return true;
  };
  same.fill = [](ParamId, int64_t, const Tensor& out) {
    out.fill_(512);
    return true;
  };
  EXPECT_EQ(digest_of(large, two_params(), at::kBFloat16),
            digest_of(same, two_params(), at::kBFloat16));
}

TEST(WeightsDigest, SeesEveryPieceOfALargeParameter) {
  std::vector<ParamShape> params = two_params();
  const auto mostly_ones = [&](int64_t place) {
    InitialWeights initial;
    initial.fill = [=](ParamId id, int64_t first, const Tensor& out) {
      out.fill_(1);
      if (id == 0 && place >= first && place < first + out.numel()) out[place - first].fill_(2);
      return true;
    };
    return weights_digest(initial, params, at::kFloat);
  };
  const Sha256Digest none = mostly_ones(-1);
  for (const int64_t place : {int64_t{0}, int64_t{1} << 20, params[0].numel() - 1})
    EXPECT_NE(mostly_ones(place), none) << place;
}

TEST(ReplayFacts, TheEnvironmentThreadsAndDeviceAreAmongThem) {
  RankInfo info;
  info.arithmetic = {"OPENBLAS_CORETYPE=Zen"};
  const nlohmann::json facts = rank_facts(info, cpu_device());
  EXPECT_EQ(facts["the environment"], nlohmann::json({"OPENBLAS_CORETYPE=Zen"}));
  EXPECT_GE(facts["the number of threads"].get<int>(), 1);
  EXPECT_FALSE(facts["the device"].get<std::string>().empty());
  const auto program = program_facts();
  ASSERT_TRUE(program);
  EXPECT_EQ(*program, *program_facts()) << "the same each time";
  EXPECT_EQ(facts_of_all_ranks(nullptr, cpu_device(), facts), "");
}

}  // namespace
}  // namespace veil
