// Runs the rows of a schedule one by one: creates what they create, calls the blocks, issues the
// other lanes' operations, frees what they free.
#pragma once

#include <vector>

#include "engine/gradients.h"
#include "engine/lanes.h"
#include "engine/row_clock.h"

namespace veil {

// The bytes that rows leave behind, held against the allocator's own count.
class RowMemory {
 public:
  RowMemory(Device device, bool watches) : device_(device), watches_(watches) {}
  bool watches() const { return watches_; }
  void watch(bool watches) { watches_ = watches; }
  // Rows are run from here on; those of before are forgotten.
  void begin();
  void observe(Part part, int index);
  const std::vector<ObservedRow>& rows() const { return rows_; }
  // A replay allocates nothing that is heard of: its rows reach what they reached before.
  void note_peaks(Part part) const;

 private:
  Device device_;
  bool watches_;
  std::vector<ObservedRow> rows_;
};

class RowRunner {
 public:
  // `data`: this rank's samples of a logical batch. `clock`: null if rows are not timed.
  RowRunner(const ExecutorContext& context, UnitBuffers& units, Gradients& gradients,
            RowClock* clock, Batch data);

  // See Executor::load.
  void load(const Batch& samples);
  int micro_batches() const { return micro_batches_; }  // of the step that runs

  void run_part(Part part, int micro_batch, bool skip_load = false);
  // Alone, on the compute lane: the body's load, which the host chooses, or a row of another part.
  void run_load(int micro_batch);
  // A micro-batch runs, row by row or as a graph: where its kept gradients lie.
  void set_place(Part part, int micro_batch);
  void run_alone(const Op& op);
  // The rows that lead to the loss, on other samples than the step's.
  Evaluation evaluate(const Batch& samples);
  // Waits, and lets go of whatever rows have created.
  void drop_step_buffers();

  RowMemory& memory() { return memory_; }

 private:
  void run_row(Part part, int index, int micro_batch);
  void run_compute(const Op& op, int micro_batch);
  void run_lane_row(const Op& op, int index);
  void load_micro_batch(int micro_batch);
  void run_loss(const Op& op);
  void run_backward(const Op& op);
  void after_reports(const Op& op);
  GradSink& sink_for(const Op& op);
  Flow input_of(int block) const;
  void free(const Buffer& buffer);
  void wait_for(const std::vector<int>& rows);
  void join();

  const ExecutorContext& context_;
  UnitBuffers& units_;
  Gradients& gradients_;
  RowClock* clock_;
  Lanes lanes_;
  RowMemory memory_;
  Batch data_, input_;
  std::vector<Flow> flow_, flow_grad_;  // by block
  std::vector<Tape> tape_;
  std::vector<std::vector<PendingPtr>> pending_;  // by row of the part that runs
  int micro_batches_;
  bool second_pass_ = false;   // of a body that runs backward twice
  bool loss_counted_ = false;  // in this body
};

}  // namespace veil
