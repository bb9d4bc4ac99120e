#include "nn/linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/threshold_backward.h>

namespace veil {

LinearRelu::LinearRelu(std::string name, ParamId weight, ParamId bias, int64_t in, int64_t out,
                       bool first)
    : name_(std::move(name)), weight_(weight), bias_(bias), in_(in), out_(out), first_(first) {}

Flow LinearRelu::forward(const Params& params, const Flow& in, Tape& tape) const {
  Tensor out = at::addmm(params[bias_], in.hidden, params[weight_].t());  // [batch, out]
  at::relu_(out);
  tape.input = in.hidden;
  tape.output = out;  // y > 0 exactly if the product was: no mask is stored
  return {out};
}

Flow LinearRelu::backward(const Params& params, Flow grad, const Tape& tape, GradSink& sink,
                          bool needs_input_grad) const {
  Tensor g = grad.hidden;  // [batch, out]
  // in place: nobody else reads this gradient
  at::threshold_backward_out(g, g, tape.output, /*threshold=*/0);
  sink.linear({weight_}, tape.input, g);
  sink.direct(bias_, g);
  if (!needs_input_grad) return {};
  return {at::mm(g, params[weight_])};  // [batch, in]
}

BlockShape LinearRelu::shape(int64_t batch, DType compute, bool) const {
  BlockShape shape;
  shape.name = name_;
  shape.params = {weight_, bias_};
  shape.reports = {{weight_, in_ * out_, Report::By::linear, false, batch, 1, out_, in_},
                   {bias_, out_, Report::By::direct, false, batch}};
  shape.output_bytes = batch * out_ * dtype_bytes(compute);
  shape.input_grad_bytes = first_ ? 0 : batch * in_ * dtype_bytes(compute);
  shape.keeps_input = true;
  shape.keeps_output = true;
  shape.forward_flops = 2 * batch * in_ * out_;
  return shape;
}

}  // namespace veil
