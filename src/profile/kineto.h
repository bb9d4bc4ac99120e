// Operators and CUDA kernels, through Kineto, the profiler inside LibTorch.
#pragma once

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <optional>
#include <string>
#include <vector>

#include "tensor/device.h"

namespace veil {

// Where time went under one name.
struct OperatorTime {
  std::string name;
  // a kernel or a copy on the GPU; otherwise an operator or a range on the host
  bool on_gpu = false;
  int64_t calls = 0;
  double total_ms = 0;  // with what it called; overlapping calls count each
};

// One profile at a time in a process, of all its threads. Start and stop on the same thread.
class KernelProfile {
 public:
  KernelProfile();
  ~KernelProfile();  // stops and drops a profile that still runs
  KernelProfile(const KernelProfile&) = delete;
  KernelProfile& operator=(const KernelProfile&) = delete;

  // Records operators with their shapes, memory, and CUDA kernels if a GPU answers. It slows
  // what it watches: never time a step under it.
  void start();
  // Ends it and writes Chrome JSON; a name in TensorBoard's form (trace_file_name) makes its
  // profiler tab find it. UserError if it cannot be written.
  void stop_and_save(const std::string& path);

  // Of the last profile that was stopped, longest first.
  const std::vector<OperatorTime>& operators() const { return operators_; }
  // The first `rows` of each kind as a text table.
  std::string top_table(int rows = 15) const;

 private:
  bool running_ = false;
  std::optional<c10::DebugInfoGuard> memory_;
  std::vector<OperatorTime> operators_;
};

// Shows a schedule row as a range in a running profile, with the memory events of its thread; costs
// next to nothing without one. A row ends before the profile is stopped.
class RowRange {
 public:
  explicit RowRange(const std::string& name) : record_(at::RecordScope::USER_SCOPE) {
    if (record_.isActive()) begin(name);
  }
  RowRange(const RowRange&) = delete;
  RowRange& operator=(const RowRange&) = delete;

 private:
  void begin(const std::string& name);

  std::optional<c10::DebugInfoGuard> memory_;
  at::RecordFunction record_;  // ends first
};

}  // namespace veil
