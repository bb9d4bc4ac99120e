// Clipping modes by sequence lengths: what the suites llama3-dp and bottlenecks share.
#pragma once

#include <memory>

#include "report/fits.h"
#include "suite/suite.h"

namespace veil {

struct ModeGrid {
  std::vector<Mode> modes = {Mode::no_dp, Mode::ghost_fsdp, Mode::flash_fsdp};
  std::vector<int64_t> seq_lengths = {1024, 2048, 4096};
  std::string token = "";  // of the hub; accepted and not used
};

// Names like ghost_fsdp_seq2048; modes of one length run side by side. UserError for a value that
// is given twice.
std::vector<Experiment> mode_experiments(const ModeGrid& grid,
                                         const std::vector<std::string>& common);

// A suite with the settings mode and seq-length as lists, and those of a private step.
Suite mode_suite(const std::string& name, const std::shared_ptr<ModeGrid>& grid);
// Checks every mode at every length. Uses bf16 on GPUs unless types are given.
void prepare_modes(const ModeGrid& grid, RunConfig& config, const SuiteCall& call);

struct ModeFigures {
  const Record* record = nullptr;
  std::string mode;
  int64_t length = 0;
  std::optional<double> ms, spread_ms, bytes;             // nothing if it failed
  std::optional<double> more_bytes, more_ms, more_share;  // against no_dp at the same length
};
std::vector<ModeFigures> mode_figures(const std::vector<Record>& records);
// In the order of the records.
std::vector<std::string> modes_of(const std::vector<ModeFigures>& all);
std::vector<int64_t> lengths_of(const std::vector<ModeFigures>& all);  // shortest first
const ModeFigures* find_mode(const std::vector<ModeFigures>& all, const std::string& mode,
                             int64_t length);

// Every metric, and the overheads against no_dp.
Table mode_table(const std::vector<Record>& records);

// How one part of a step, or of the peak, grows with the length.
struct PartGrowth {
  std::string mode, part;
  std::optional<GrowthFit> fit;
  double longest = 0, share = 0;  // at the longest length: the amount, and its share of the whole
};
// Parts of the step by share, the largest first; "step" is the whole.
std::vector<PartGrowth> time_growth(const std::vector<Record>& records, const std::string& mode);
std::vector<PartGrowth> memory_growth(const std::vector<Record>& records,
                                      const std::string& mode);  // "peak" is the whole
Table growth_table(const std::vector<Record>& records);
inline constexpr const char* kGrowthCaption =
    "The simplest of a, a + bT and a + bT + cT^2 that is within 2% of every length; three lengths "
    "can tell a line, four a square";
std::string show_time(double ms);
std::string show_memory(double bytes);

// "Growth of flash: time grows linearly with T ..."; "" without three lengths.
std::string growth_sentence(const std::vector<Record>& records, const std::string& mode);

// The largest part of a step at the longest length.
struct Bottleneck {
  std::string mode, part;
  int64_t length = 0;
  double ms = 0, share = 0;
  std::optional<GrowthFit> fit;
};
std::optional<Bottleneck> bottleneck_of(const std::vector<Record>& records,
                                        const std::string& mode);

inline constexpr const char* kLengthAxis = "tokens in a sequence (T)";
// The title of a plot, which says where communication was modelled.
std::string titled(const std::string& title, const std::vector<Record>& records);

}  // namespace veil
