// The executor's graphs, clocks and inspection.
#include <algorithm>

#include "base/error.h"
#include "kernels/clip_scale.h"
#include "kernels/squared_norm.h"
#include "kernels/update.h"
#include "train/clip_state.h"
#include "train/executor.h"
#include "train/executor_state.h"

namespace veil {

void Executor::prepare() {
  VEIL_CHECK(graph_state_ == "not prepared", "prepare is called once");
  StreamGuard guard(compute_);
  reserve_library_workspaces(device_);
  std::string why_not;
  if (options_.graph == GraphMode::off) {
    why_not = "off: asked for";
  } else if (!device_.is_cuda()) {
    why_not = "off: no GPU";
  } else {
    for (const Communicator* lane : {ranks_.gather.get(), ranks_.reduce.get()}) {
      if (lane && why_not.empty() && !lane->why_not_capturable().empty())
        why_not = "off: " + lane->why_not_capturable();
    }
  }
  // A graph's markers are recorded anew at each replay: of several bodies only the last would be left.
  if (why_not.empty() && timers_ && options_.step.micro_batches > 1) {
    why_not = "off: rows of several micro-batches are timed (--profile none or memory leaves it on)";
  }
  if (!why_not.empty()) {
    if (options_.graph == GraphMode::on)
      user_error("--graph on cannot be met ({}): pass --graph auto or off", why_not.substr(5));
    graph_state_ = why_not;
    return;
  }
  capture();
  graph_state_ = "on";
}

// Libraries set themselves up at their first call, which no capture allows: prologue and body run once before, and the update runs on a stand-in. None
// of them changes a parameter.
void Executor::capture() {
  const bool watched = options_.watch_memory;
  options_.watch_memory = false;
  // A lane that only the tail uses (ddp that accumulates whole gradients) would make its first call inside the capture.
  for (Communicator* lane : {ranks_.gather.get(), ranks_.reduce.get()}) {
    if (lane) lane->barrier();
  }
  run_part(Part::prologue, 0);
  run_part(Part::body, 0);
  drop_step_buffers();
  {
    auto stand_in = [&](int64_t numel, DType dtype) { return empty_tensor({numel}, dtype, device_).zero_(); };
    Tensor state;
    if (const int states = optimizer_states(options_.optimizer.kind))
      state = stand_in(int64_t{8} * states, options_.step.optimizer_state());
    update_shard(stand_in(8, options_.step.storage), stand_in(8, schedule_.grad_shard_dtype), state, knobs_, rule_, 0);
    const Tensor knobs = stand_in(knobs_.numel(), at::kDouble);
    add_squared_norm(stand_in(8, schedule_.grad_shard_dtype), knobs.narrow(0, kSquaredNormKnob, 1));
    clip_scale(knobs);
  }
  wait();
  release_cached_memory(device_);  // the graphs allocate from a pool of their own
  // Markers of this run would stay in rows that no replay records again (a load outside its graph) and be read as this step's.
  if (timers_) {
    for (auto& runs : timers_->parts) runs.clear();
  }
  // A replay allocates nothing that the ledger hears: its peak is known from the capture alone.
  options_.watch_memory = ledger::installed();
  begin_observing();
  Graph::Pool pool;
  for (int p = 0; p < kParts; ++p) {
    const auto part = static_cast<Part>(p);
    graphs_[p] = Graph::capture(
        device_, [&] { run_part(part, 0, /*skip_load=*/true); }, &pool);
  }
  options_.watch_memory = watched;
}

void Executor::drop_step_buffers() {
  wait();
  for (int p = 0; p < kParts; ++p) {
    for (const Op& op : schedule_.parts[p]) {
      for (const Buffer& buffer : op.creates) {
        if (made_by_blocks(buffer.role)) continue;
        if (slot(buffer).defined()) free(buffer);
      }
    }
  }
  for (size_t b = 0; b < tape_.size(); ++b) tape_[b] = {}, flow_[b] = {}, flow_grad_[b] = {};
  for (Unit& unit : units_) unit.sample_grads.reset(), unit.grad_shard.reset();
  if (clip_) clip_->drop();
  pending_.clear();
}

void Executor::TimedSink::timed(const std::function<void()>& work) {
  if (!timers_.running) return work();
  Timers::Row& row = *timers_.running;
  if (row.reported == row.reports.size()) row.reports.push_back({Marker::timed(device_), Marker::timed(device_)});
  Timers::Span span = row.reports[row.reported++];  // markers are shared, not copied
  span.begin.record();
  work();
  span.end.record();
}

void Executor::TimedSink::linear(ReportOf of, const Tensor& a, const Tensor& g) {
  timed([&] { sink_->linear(of, a, g); });
}

void Executor::TimedSink::embedding(ParamId table, const Tensor& ids, const Tensor& g) {
  timed([&] { sink_->embedding(table, ids, g); });
}

void Executor::TimedSink::direct(ParamId param, const Tensor& per_sample) {
  timed([&] { sink_->direct(param, per_sample); });
}

StepTime Executor::read_times() {
  VEIL_CHECK(timers_, "times are read but were not taken");
  StepTime time;
  time.total_ms = timers_->step_end.ms_since(timers_->step_begin);
  double compute_end = 0;
  for (int p = 0; p < kParts; ++p) {
    const auto& runs = timers_->parts[p];
    // A step with fewer micro-batches than one before leaves the old one's markers behind its own.
    const size_t ran = static_cast<Part>(p) == Part::body ? static_cast<size_t>(micro_batches_) : runs.size();
    for (size_t m = 0; m < std::min(runs.size(), ran); ++m) {
      for (size_t i = 0; i < runs[m].size(); ++i) {
        const Timers::Row& row = runs[m][i];
        RowTime times;
        times.part = p;
        times.op = static_cast<int>(i);
        times.micro_batch = static_cast<int>(m);
        times.lane = static_cast<int>(schedule_.parts[p][i].lane);
        if (!row.begin.empty()) {
          times.begin_ms = row.begin.ms_since(timers_->step_begin);
          times.end_ms = row.end.ms_since(timers_->step_begin);
          times.wait_ms = times.begin_ms - compute_end;
          for (size_t k = 0; k < row.reported; ++k)
            times.reports_ms += row.reports[k].end.ms_since(row.reports[k].begin);
          compute_end = times.end_ms;
        } else if (!row.pending.empty()) {
          if (!row.pending.front()->began().empty()) {
            times.begin_ms = row.pending.front()->began().ms_since(timers_->step_begin);
            times.end_ms = row.pending.back()->ended().ms_since(timers_->step_begin);
          }
          for (const PendingPtr& pending : row.pending) times.modelled_ms += pending->modelled_ms();
        } else {
          continue;  // a load outside its graph
        }
        time.rows.push_back(times);
      }
    }
  }
  return time;
}

Tensor Executor::parameter(ParamId id) {
  StreamGuard guard(compute_);
  const int u = schedule_.layout.unit_of_param[id];
  const UnitLayout& layout = schedule_.layout.units[u];
  Tensor flat = units_[u].params;
  if (schedule_.reduces && options_.step.strategy != Strategy::ddp) {
    Tensor whole = empty_tensor({layout.padded_numel}, options_.step.storage, device_);
    own_part(whole, u).copy_(own_part(flat, u));
    ranks_.gather->all_gather(own_part(whole, u), whole)->wait();
    flat = whole;
  }
  wait();
  for (const ParamSlot& slot : layout.slots) {
    if (slot.param == id) return flat.narrow(0, slot.offset, slot.numel).view(shape_.params[id].dims).cpu().clone();
  }
  check_failed(__FILE__, __LINE__, "not reached", fmt::format("{} has no place in its unit", shape_.params[id].name));
}

}  // namespace veil
