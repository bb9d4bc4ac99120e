#include "engine/step_graphs.h"

#include "base/error.h"

namespace veil {

void StepGraphs::prepare() {
  VEIL_CHECK(!prepared(), "prepare is called once");
  StreamGuard guard(context_.compute);
  reserve_library_workspaces(context_.device);
  const std::string reason = why_not();
  if (reason.empty()) {
    capture();
    state_ = "on";
    return;
  }
  if (context_.options.graph == GraphMode::on)
    field_error("graph", "on cannot be met ({}): allowed here are auto and off", reason);
  state_ = "off: " + reason;
}

std::string StepGraphs::why_not() const {
  if (context_.options.graph == GraphMode::off) return "requested";
  if (context_.schedule.defers_update) return "buffers pass from step to step (defer_update)";
  if (!context_.device.is_cuda()) return "no GPU";
  for (const Communicator* lane : {context_.ranks.gather.get(), context_.ranks.reduce.get()}) {
    if (lane && !lane->why_not_capturable().empty()) return lane->why_not_capturable();
  }
  // A graph's markers are recorded anew at each replay: of several bodies only the last would be
  // left.
  if (clock_ && context_.options.step.micro_batches > 1)
    return "rows of several micro-batches are timed (profile none or memory leaves it on)";
  return {};
}

// Libraries set themselves up at their first call, which no capture allows: prologue and body run
// once before, and the update runs on a stand-in. None of them changes a parameter.
void StepGraphs::capture() {
  RowMemory& memory = rows_.memory();
  const bool watched = memory.watches();
  memory.watch(false);
  // A lane that only the tail uses (ddp that accumulates whole gradients) would make its first call
  // inside the capture.
  for (Communicator* lane : {context_.ranks.gather.get(), context_.ranks.reduce.get()}) {
    if (lane) lane->barrier();
  }
  rows_.run_part(Part::prologue, 0);
  rows_.run_part(Part::body, 0);
  rows_.drop_step_buffers();
  gradients_.rehearse();
  synchronize(context_.device);
  release_cached_memory(context_.device);  // the graphs allocate from a pool of their own
  // Markers of this run would stay in rows that no replay records again (a load outside its graph)
  // and be read as this step's.
  if (clock_) clock_->forget_rows();
  // A replay allocates nothing that the memory tracker hears: its peak is known from the capture
  // alone.
  memory.watch(memory::installed());
  memory.begin();
  Graph::Pool pool;
  for (int p = 0; p < kParts; ++p) {
    const auto part = static_cast<Part>(p);
    if (context_.schedule.part(part).empty()) continue;
    const int places = part == Part::body ? context_.schedule.combine_every : 1;
    for (int place = 0; place < places; ++place) {
      parts_[p].push_back(Graph::capture(
          context_.device, [&] { rows_.run_part(part, place, /*skip_load=*/true); }, &pool));
    }
  }
  memory.watch(watched);
}

void StepGraphs::run(Part part, int micro_batch) {
  std::vector<Graph>& graphs = parts_[static_cast<int>(part)];
  if (graphs.empty()) {
    rows_.run_part(part, micro_batch);
    return;
  }
  const StepOptions& step = context_.options.step;
  if (part == Part::body && (step.micro_batches > 1 || step.varying))
    rows_.run_load(micro_batch);  // the host chooses the samples
  rows_.set_place(part, micro_batch);
  graphs[static_cast<size_t>(micro_batch) % graphs.size()].replay();
  rows_.memory().note_peaks(part);
}

}  // namespace veil
