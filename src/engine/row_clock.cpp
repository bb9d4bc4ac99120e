#include "engine/row_clock.h"

#include <algorithm>

namespace veil {

RowClock::RowClock(const Schedule& schedule, Device device, bool reports)
    : schedule_(schedule),
      device_(device),
      reports_(reports),
      step_begin_(Marker::timed(device)),
      step_end_(Marker::timed(device)) {}

RowClock::Row& RowClock::row(Part part, int micro_batch, int index) {
  auto& runs = parts_[static_cast<int>(part)];
  if (runs.size() <= static_cast<size_t>(micro_batch))
    runs.resize(static_cast<size_t>(micro_batch) + 1);
  auto& rows = runs[micro_batch];
  if (rows.empty()) rows.resize(schedule_.part(part).size());
  return rows[index];
}

void RowClock::begin_row(Part part, int micro_batch, int index) {
  running_ = &row(part, micro_batch, index);
  if (running_->begin.empty())
    running_->begin = Marker::timed(device_), running_->end = Marker::timed(device_);
  running_->begin.record();
  running_->reported = 0;
}

void RowClock::end_row() {
  running_->end.record();
  running_ = nullptr;
}

void RowClock::lane_row(Part part, int micro_batch, int index,
                        const std::vector<PendingPtr>& pending) {
  row(part, micro_batch, index).pending = pending;
}

void RowClock::forget_rows() {
  for (auto& runs : parts_) runs.clear();
}

GradSink& RowClock::timed(GradSink& sink) {
  if (!reports_) return sink;
  sink_.around(sink);
  return sink_;
}

void RowClock::time_report(const std::function<void()>& work) {
  if (!reports_ || !running_) return work();
  Row& row = *running_;
  if (row.reported == row.reports.size())
    row.reports.push_back({Marker::timed(device_), Marker::timed(device_)});
  Span span = row.reports[row.reported++];  // markers are shared, not copied
  span.begin.record();
  work();
  span.end.record();
}

void RowClock::TimedSink::linear(ReportOf of, const Tensor& a, const Tensor& g) {
  clock_.time_report([&] { sink_->linear(of, a, g); });
}

void RowClock::TimedSink::embedding(ParamId table, const Tensor& ids, const Tensor& g) {
  clock_.time_report([&] { sink_->embedding(table, ids, g); });
}

void RowClock::TimedSink::direct(ParamId param, const Tensor& per_sample) {
  clock_.time_report([&] { sink_->direct(param, per_sample); });
}

// False for a row without times: a load outside its graph.
bool RowClock::read_row(const Row& row, RowTime& times, double& compute_end) const {
  if (!row.begin.empty()) {
    times.begin_ms = row.begin.ms_since(step_begin_);
    times.end_ms = row.end.ms_since(step_begin_);
    times.wait_ms = times.begin_ms - compute_end;
    for (size_t k = 0; k < row.reported; ++k)
      times.reports_ms += row.reports[k].end.ms_since(row.reports[k].begin);
    compute_end = times.end_ms;
    return true;
  }
  if (row.pending.empty()) return false;
  if (!row.pending.front()->began().empty()) {
    times.begin_ms = row.pending.front()->began().ms_since(step_begin_);
    times.end_ms = row.pending.back()->ended().ms_since(step_begin_);
  }
  for (const PendingPtr& pending : row.pending) times.modelled_ms += pending->modelled_ms();
  return true;
}

StepTime RowClock::read() const {
  StepTime time;
  time.total_ms = step_end_.ms_since(step_begin_);
  double compute_end = 0;
  for (const auto& [part, micro_batch] : ran_) {
    const auto& runs = parts_[static_cast<int>(part)];
    if (runs.size() <= static_cast<size_t>(micro_batch)) continue;
    const std::vector<Row>& rows = runs[static_cast<size_t>(micro_batch)];
    for (size_t i = 0; i < rows.size(); ++i) {
      RowTime times;
      times.part = static_cast<int>(part);
      times.op = static_cast<int>(i);
      times.micro_batch = micro_batch;
      times.lane = static_cast<int>(schedule_.part(part)[i].lane);
      if (read_row(rows[i], times, compute_end)) time.rows.push_back(times);
    }
  }
  return time;
}

}  // namespace veil
