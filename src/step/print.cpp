#include "base/table.h"
#include "base/text.h"
#include "base/units.h"
#include "step/schedule.h"

namespace veil {

const NameTable<OpKind>& names(OpKind) {
  static const NameTable<OpKind> table = {{OpKind::load, "load"},
                                          {OpKind::zero, "zero"},
                                          {OpKind::gather, "gather"},
                                          {OpKind::forward, "forward"},
                                          {OpKind::release, "release"},
                                          {OpKind::recompute, "recompute"},
                                          {OpKind::loss, "loss"},
                                          {OpKind::backward, "backward"},
                                          {OpKind::weight_grad, "weight_grad"},
                                          {OpKind::combine, "combine"},
                                          {OpKind::reduce, "reduce"},
                                          {OpKind::exchange, "exchange"},
                                          {OpKind::norm, "norm"},
                                          {OpKind::coefficients, "coefficients"},
                                          {OpKind::update, "update"},
                                          {OpKind::copy_in, "copy_in"},
                                          {OpKind::copy_out, "copy_out"}};
  return table;
}

const NameTable<GradUse>& names(GradUse) {
  static const NameTable<GradUse> table = {{GradUse::none, "none"}, {GradUse::sum, "sum"},
                                           {GradUse::norm, "norm"}, {GradUse::keep, "keep"},
                                           {GradUse::book, "book"}, {GradUse::clip, "clip"}};
  return table;
}

const NameTable<Lane>& names(Lane) {
  static const NameTable<Lane> table = {{Lane::compute, "compute"},
                                        {Lane::gather, "gather"},
                                        {Lane::reduce, "reduce"},
                                        {Lane::copy, "copy"}};
  return table;
}

const NameTable<Part>& names(Part) {
  static const NameTable<Part> table = {{Part::prologue, "prologue"},
                                        {Part::body, "body"},
                                        {Part::sums, "sums"},
                                        {Part::turn, "turn"},
                                        {Part::tail, "tail"}};
  return table;
}

const NameTable<BufferRole>& names(BufferRole) {
  static const NameTable<BufferRole> table = {{BufferRole::params, "params"},
                                              {BufferRole::optimizer, "optimizer"},
                                              {BufferRole::whole, "whole"},
                                              {BufferRole::grad, "grad"},
                                              {BufferRole::wire, "wire"},
                                              {BufferRole::grad_shard, "grad_shard"},
                                              {BufferRole::reduced, "reduced"},
                                              {BufferRole::staged_params, "staged_params"},
                                              {BufferRole::staged_optimizer, "staged_optimizer"},
                                              {BufferRole::flow, "flow"},
                                              {BufferRole::flow_grad, "flow_grad"},
                                              {BufferRole::tape, "tape"},
                                              {BufferRole::kept, "kept"},
                                              {BufferRole::reported, "reported"},
                                              {BufferRole::sample_grads, "sample_grads"},
                                              {BufferRole::received, "received"},
                                              {BufferRole::booked, "booked"},
                                              {BufferRole::tied_rows, "tied_rows"},
                                              {BufferRole::norms, "norms"},
                                              {BufferRole::data, "data"},
                                              {BufferRole::input, "input"},
                                              {BufferRole::knobs, "knobs"}};
  return table;
}

std::string op_target(const Op& op, const Schedule& schedule, const ModelShape& shape) {
  if (op.unit >= 0) return schedule.layout.units[op.unit].name;
  if (op.block >= 0)
    return op.block == static_cast<int>(shape.blocks.size()) ? shape.loss.name
                                                             : shape.blocks[op.block].name;
  return "";
}

namespace {

std::string describe(const std::vector<Buffer>& buffers) {
  std::vector<std::string> parts;
  for (const Buffer& buffer : buffers)
    parts.push_back(
        fmt::format("{}.{} {}", name_of(buffer.role), buffer.index, format_bytes(buffer.bytes)));
  return join(parts, ", ");
}

}  // namespace

std::string print_schedule(const Schedule& schedule, const ModelShape& shape, bool buffers) {
  std::vector<std::vector<std::string>> rows = {{"part", "#", "lane", "op", "on", "after", "note"}};
  if (buffers) rows[0].insert(rows[0].end(), {"creates", "frees"});
  for (int p = 0; p < kParts; ++p) {
    const auto part = static_cast<Part>(p);
    for (size_t i = 0; i < schedule.part(part).size(); ++i) {
      const Op& op = schedule.part(part)[i];
      std::vector<std::string> after;
      for (int index : op.after) after.push_back(std::to_string(index));
      rows.push_back({i == 0 ? name_of(part) : "", std::to_string(i), name_of(op.lane),
                      name_of(op.kind), op_target(op, schedule, shape), join(after, ","),
                      op.note.empty() && op.use != GradUse::none ? name_of(op.use) : op.note});
      if (buffers)
        rows.back().insert(rows.back().end(), {describe(op.creates), describe(op.frees)});
    }
  }
  return align_columns(rows);
}

}  // namespace veil
