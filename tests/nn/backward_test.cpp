// Explicit forward and backward against autograd, and the sink's sums and scratch. Autograd is the
// oracle here and nowhere in the product.
#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "nn/linear.h"
#include "nn/mse.h"
#include "nn/summed_sink.h"
#include "profile/memory.h"

namespace veil {
namespace {

struct Values final : Params {
  std::vector<Tensor> tensors;
  Tensor joined(ParamId first, int) const override { return (*this)[first]; }
  const Tensor& operator[](ParamId id) const override { return tensors[static_cast<size_t>(id)]; }
};

// Two layers and the loss: weight, bias, weight, bias.
struct Net {
  int64_t batch, in, hidden, out;
  LinearRelu first{"first", 0, 1, in, hidden, true}, second{"second", 2, 3, hidden, out, false};
  MeanSquaredError loss{out};
};

struct Case {
  Values params;
  Tensor x, target;
};

Case random_case(const Net& net) {
  Case c;
  for (const std::vector<int64_t>& dims :
       {std::vector<int64_t>{net.hidden, net.in}, {net.hidden}, {net.out, net.hidden}, {net.out}}) {
    c.params.tensors.push_back(at::randn(dims, at::kDouble));
  }
  c.x = at::randn({net.batch, net.in}, at::kDouble);
  c.target = at::randn({net.batch, net.out}, at::kDouble);
  return c;
}

Case on(const Case& c, Device device, DType dtype) {
  Case moved;
  for (const Tensor& tensor : c.params.tensors)
    moved.params.tensors.push_back(tensor.to(device, dtype));
  moved.x = c.x.to(device, dtype);
  moved.target = c.target.to(device, dtype);
  return moved;
}

struct Result {
  double loss = 0;
  std::vector<Tensor> grads;  // by parameter
  Tensor input_grad;
};

SummedSink::Target into(std::vector<Tensor> grads) {
  return [grads](ParamId id, int64_t first, int64_t count) {
    return grads[static_cast<size_t>(id)].view({-1}).narrow(0, first, count);
  };
}

std::vector<int64_t> numel_of(const std::vector<Tensor>& tensors) {
  std::vector<int64_t> numel;
  for (const Tensor& tensor : tensors) numel.push_back(tensor.numel());
  return numel;
}

Result by_autograd(const Case& given) {
  Case c = given;
  std::vector<Tensor> leaves;
  for (Tensor& tensor : c.params.tensors)
    leaves.push_back(tensor = tensor.detach().clone().requires_grad_(true));
  leaves.push_back(c.x = c.x.detach().clone().requires_grad_(true));
  const Tensor hidden = at::relu(at::addmm(c.params[1], c.x, c.params[0].t()));
  const Tensor out = at::relu(at::addmm(c.params[3], hidden, c.params[2].t()));
  const Tensor loss = (out - c.target).pow(2).mean(1).sum();
  std::vector<Tensor> grads = torch::autograd::grad({loss}, leaves);
  Result result{loss.item<double>(), {}, grads.back()};
  grads.pop_back();
  result.grads = grads;
  return result;
}

Result by_hand(const Net& net, const Case& c, DType grad_dtype, bool accumulate, int times = 1) {
  Result result;
  for (const Tensor& param : c.params.tensors) {
    // Without accumulation what was there before must not matter.
    result.grads.push_back(
        at::full(param.sizes(), accumulate ? 0.0 : 1e6, param.options().dtype(grad_dtype)));
  }
  SummedSink sink(numel_of(result.grads), accumulate, into(result.grads));
  const Tensor loss_sum = at::zeros({1}, c.x.options().dtype(at::kDouble));
  for (int i = 0; i < times; ++i) {
    sink.begin_body();
    Tape first, second;
    const Flow hidden = net.first.forward(c.params, {c.x}, first);
    const Flow out = net.second.forward(c.params, hidden, second);
    Flow grad = net.loss.run(c.params, out, {c.x, c.target}, loss_sum, sink);
    grad = net.second.backward(c.params, grad, second, sink, true);
    result.input_grad = net.first.backward(c.params, grad, first, sink, true).hidden;
  }
  result.loss = loss_sum.cpu().item<double>();
  return result;
}

// The largest difference, measured by the largest entry.
double relative_difference(const Tensor& a, const Tensor& b) {
  const Tensor x = a.cpu().to(at::kDouble), y = b.cpu().to(at::kDouble);
  return (x - y).abs().max().item<double>() / std::max(1.0, y.abs().max().item<double>());
}

void expect_near(const Result& got, const Result& expected, double tolerance, double factor = 1) {
  EXPECT_NEAR(got.loss, factor * expected.loss, tolerance * std::max(1.0, expected.loss));
  EXPECT_LE(relative_difference(got.input_grad, expected.input_grad), tolerance);
  ASSERT_EQ(got.grads.size(), expected.grads.size());
  for (size_t p = 0; p < got.grads.size(); ++p) {
    EXPECT_LE(relative_difference(got.grads[p], factor * expected.grads[p]), tolerance)
        << "parameter " << p;
  }
}

const Net kNets[] = {{1, 1, 1, 1}, {5, 3, 7, 2}, {16, 13, 13, 13}, {33, 64, 17, 129}};

void backward_is_autograds(Device device) {
  for (const Net& net : kNets) {
    const Case c = random_case(net);
    const Result expected = by_autograd(c);
    const Case placed = on(c, device, at::kDouble);
    expect_near(by_hand(net, placed, at::kDouble, false), expected, 1e-10);
    expect_near(by_hand(net, placed, at::kDouble, true), expected, 1e-10);
    expect_near(by_hand(net, placed, at::kDouble, true, 3), expected, 1e-10, 3);
    // Without accumulation the sums are the last body's; the loss is summed over all.
    Result last = by_hand(net, placed, at::kDouble, false, 3);
    last.loss /= 3;
    expect_near(last, expected, 1e-10);
  }
}

// Products of bf16 numbers, sums of them kept in fp32: against autograd on the same rounded
// numbers.
void mixed_types_stay_near(Device device) {
  const Net& net = kNets[3];
  const Case rounded = on(random_case(net), device, at::kBFloat16);
  const Result expected = by_autograd(on(rounded, cpu_device(), at::kDouble));
  for (const bool accumulate : {false, true}) {
    const Result got = by_hand(net, rounded, at::kFloat, accumulate);
    for (const Tensor& grad : got.grads) EXPECT_EQ(grad.scalar_type(), at::kFloat);
    expect_near(got, expected, 3e-2);  // the flow between the layers is bf16
  }
  const Case single = on(rounded, device, at::kFloat);
  expect_near(by_hand(net, single, at::kFloat, false), expected, 1e-5);
  expect_near(by_hand(net, single, at::kFloat, true), expected, 1e-5);
}

TEST(Backward, IsAutogradsToTenDigits) {
  backward_is_autograds(cpu_device());
}
TEST(Backward, OfMixedTypesStaysNear) {
  mixed_types_stay_near(cpu_device());
}

TEST(GpuBackward, IsAutogradsToTenDigits) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  backward_is_autograds(gpu_device(0));
}

TEST(GpuBackward, OfMixedTypesStaysNear) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  mixed_types_stay_near(gpu_device(0));
}

// Sums of bf16 products in fp32: nothing is lost on the way into an fp32 gradient on the GPU.
TEST(GpuBackward, ProductsOfBf16AreSummedInFp32) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const Device gpu = gpu_device(0);
  const Tensor a = at::randn({512, 24}, at::kDouble).to(gpu, at::kBFloat16),
               g = at::randn({512, 40}, at::kDouble).to(gpu, at::kBFloat16);
  const Tensor exact = g.to(at::kDouble).t().mm(a.to(at::kDouble));
  for (const bool accumulate : {false, true}) {
    const Tensor grad = at::zeros({40, 24}, a.options().dtype(at::kFloat));
    SummedSink sink({grad.numel()}, accumulate, into({grad}));
    sink.begin_body();
    sink.linear({0}, a, g);
    EXPECT_LE(relative_difference(grad, exact), 1e-5);
  }
}

TEST(SummedSink, ReportsThatSplitTheRowsAreOneReport) {
  const Tensor a = at::randn({9, 5}, at::kDouble), g = at::randn({9, 11}, at::kDouble);
  for (const bool accumulate : {false, true}) {
    const Tensor whole = at::full({11, 5}, accumulate ? 0.5 : 1e6, at::kDouble),
                 split = whole.clone();
    SummedSink one({whole.numel()}, accumulate, into({whole})),
        several({split.numel()}, accumulate, into({split}));
    for (SummedSink* sink : {&one, &several}) sink->begin_body();
    one.linear({0}, a, g);
    several.linear({0}, a, g.narrow(1, 0, 4));
    several.linear({0, 4}, a, g.narrow(1, 4, 7));
    EXPECT_LE(relative_difference(split, whole), 1e-14);
    EXPECT_LE(relative_difference(whole, g.t().mm(a) + (accumulate ? 0.5 : 0.0)), 1e-14);
  }
}

TEST(SummedSink, ASecondReportOfABodyAddsAndANewBodyOverwrites) {
  const Tensor a = at::randn({9, 5}, at::kDouble), g = at::randn({9, 11}, at::kDouble),
               once = g.t().mm(a);
  const Tensor weight = at::full({11, 5}, 1e6, at::kDouble),
               bias = at::full({11}, 1e6, at::kDouble);
  SummedSink sink({weight.numel(), bias.numel()}, false, into({weight, bias}));
  for (int body = 0; body < 2; ++body) {
    sink.begin_body();
    for (int report = 1; report <= 2; ++report) {  // a tied weight
      sink.linear({0}, a, g);
      sink.direct(1, g);
      EXPECT_LE(relative_difference(weight, report * once), 1e-14);
      EXPECT_LE(relative_difference(bias, report * g.sum(0)), 1e-14);
    }
  }
}

TEST(SummedSink, TokensOfASampleAreSummed) {
  const Tensor a = at::randn({3, 4, 5}, at::kDouble), g = at::randn({3, 4, 2}, at::kDouble);
  const Tensor grad = at::zeros({2, 5}, at::kDouble);
  SummedSink sink({grad.numel()}, false, into({grad}));
  sink.begin_body();
  sink.linear({0}, a, g);
  Tensor expected = at::zeros({2, 5}, at::kDouble);
  for (int64_t i = 0; i < 3; ++i) expected += g.select(0, i).t().mm(a.select(0, i));
  EXPECT_LE(relative_difference(grad, expected), 1e-14);
}

// Sizes below those that a library takes over: see SinkScratch.
void scratch_is_what_is_stated(Device device, DType compute, DType grad, int64_t samples) {
  const Space space = space_of(device);
  const Tensor a = at::randn({samples, 8}).to(device, compute),
               g = at::randn({samples, 12}).to(device, compute);
  for (const bool accumulate : {false, true}) {
    if (accumulate && compute == at::kFloat && grad == at::kBFloat16)
      continue;  // sums over micro-batches are fp32 or better
    for (const bool matrix : {false, true}) {
      const Tensor out = at::zeros(matrix ? std::vector<int64_t>{12, 8} : std::vector<int64_t>{12},
                                   a.options().dtype(grad));
      SummedSink sink({out.numel()}, accumulate, into({out}));
      auto report = [&] {
        sink.begin_body();
        matrix ? sink.linear({0}, a, g) : sink.direct(0, g);
      };
      report();
      const int64_t before = memory::take_row(space).after.total();
      report();
      const memory::RowBytes row = memory::take_row(space);
      EXPECT_EQ(row.after.total(), before) << "a temporary stays";
      EXPECT_EQ(row.peak.total() - before,
                summed_sink_scratch_bytes({samples, out.numel(),
                                           matrix ? Report::By::linear : Report::By::direct,
                                           accumulate, compute, grad, device.is_cuda()}))
          << dtype_name(compute) << " into " << dtype_name(grad)
          << (accumulate ? " added" : " written") << (matrix ? " linear" : " direct");
    }
  }
}

void scratch_is_what_is_stated(Device device) {
  memory::install();
  reserve_library_workspaces(device);
  for (const int64_t samples : {1, 3, 30}) {
    scratch_is_what_is_stated(device, at::kFloat, at::kFloat, samples);
    scratch_is_what_is_stated(device, at::kDouble, at::kDouble, samples);
    scratch_is_what_is_stated(device, at::kBFloat16, at::kFloat, samples);
    scratch_is_what_is_stated(device, at::kBFloat16, at::kBFloat16, samples);
    scratch_is_what_is_stated(device, at::kFloat, at::kBFloat16, samples);
  }
}

TEST(SummedSink, ScratchIsWhatIsStated) {
  scratch_is_what_is_stated(cpu_device());
}

TEST(GpuSummedSink, ScratchIsWhatIsStated) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  scratch_is_what_is_stated(gpu_device(0));
}

}  // namespace
}  // namespace veil
