// What metrics.jsonl and settings.json of a training run's folder say, and the pieces that its pages
// are made of.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "record/metrics_line.h"
#include "report/charts.h"
#include "report/plots.h"
#include "report/report.h"

namespace veil {

struct TrainingRun {
  std::string folder;
  std::vector<MetricsLine> steps, evaluations;  // by step
  nlohmann::ordered_json settings = {};         // none if settings.json cannot be read
  int64_t damaged = 0;                          // lines that could not be read
  bool is_private() const;
};

// Whether a folder has a training run's metrics and no records of experiments.
bool holds_training(const std::string& folder);
// UserError where no line of the metrics is a step.
TrainingRun read_training(const std::string& folder);

using MetricsFigure = std::function<std::optional<double>(const MetricsLine&)>;
MetricsFigure figure_of(std::optional<double> MetricsLine::*figure);
std::optional<double> peak_of(const MetricsLine& line);
std::optional<double> highest_peak(const TrainingRun& run);
// "1 line of metrics.jsonl could not be read and is left out."
std::string damaged_words(const TrainingRun& run);

// "4.5", "inf", "-" for none.
std::string shown_number(std::optional<double> value, const char* digits = "{:.4g}");
// Of those that have a number; NaN if none has.
double mean_of(const std::vector<MetricsLine>& lines, const MetricsFigure& figure, size_t from,
               size_t to);
// Of the last tenth of the steps: a single step's loss is noise. NaN if one of them has no finite
// loss though it had samples.
double last_loss(const TrainingRun& run);

// A figure over the steps. Of long runs every point stands for as many steps in a row: the mean, or
// the last of them, as for a bound that grows.
enum class PointOf { mean, last };
ChartLine step_curve(const std::string& name, const std::string& color,
                     const std::vector<MetricsLine>& lines, const MetricsFigure& figure,
                     PointOf point_of = PointOf::mean, double unit = 1);
// " Each point is the mean of 3 steps.", or "" for so few steps that each is a point.
std::string thinned_words(size_t steps, PointOf point_of = PointOf::mean);
// So many places of a list, evenly spread, with the first and the last.
std::vector<size_t> spread_places(size_t size, size_t most);

inline constexpr const char* kNotPrivateWords =
    "Not private: losses and norms were measured on the data, and the guarantee does not cover "
    "them. Do not publish this page with the model.";

inline constexpr const char* kEpsilonWords =
    "An upper bound for all steps so far, at the run's delta: counted exactly at about fifty steps "
    "and at the planned end; a step between two of these has the later one's.";

// Pages about runs, and where they go.
struct RunPages {
  std::string output_folder, pictures;
  std::vector<Plot> plots;
  std::string summary;
  bool owner_only = false;  // losses tell of the data
  // Each file's name and content; what it says where there are no pictures is known when they have
  // been drawn.
  std::vector<std::pair<std::string, std::function<std::string(const std::string& plots_hint)>>>
      files;
};
// UserError where a file is in the way that Veil did not write; nothing is written then.
ReportFiles write_run_pages(const RunPages& pages, bool overwrite);

}  // namespace veil
