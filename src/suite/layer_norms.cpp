#include "suite/layer_norms.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>

#include "base/text.h"
#include "report/charts.h"
#include "report/tables.h"

namespace veil {
namespace {

constexpr size_t kMostMarks = 12;  // names of layers under the axis

// The embedding, blocks by their number, what has another name, the head.
std::tuple<int, long, std::string> place_in_model(const std::string& layer) {
  const size_t dot = layer.rfind('.');
  if (dot != std::string::npos) return {1, std::atol(layer.c_str() + dot + 1), layer};
  return {layer == "embed" ? 0 : layer == "head" ? 3 : 2, 0, layer};
}

double whole_of(const std::vector<LayerNorm>& norms) {
  double sum = 0;
  for (const LayerNorm& norm : norms) sum += norm.ms;
  return sum;
}

bool any_backward(const std::vector<Record>& records) {
  return std::any_of(records.begin(), records.end(), [](const Record& record) {
    const std::vector<LayerNorm> norms = layer_norms(record);
    return std::any_of(norms.begin(), norms.end(), [](const LayerNorm& n) { return n.backward; });
  });
}

// Layers of any of the records, in the order of the model.
std::vector<std::string> layers_of(const std::vector<Record>& records) {
  std::vector<std::string> layers;
  for (const Record& record : records) {
    for (const LayerNorm& norm : layer_norms(record)) {
      if (std::find(layers.begin(), layers.end(), norm.layer) == layers.end())
        layers.push_back(norm.layer);
    }
  }
  std::sort(layers.begin(), layers.end(), [](const std::string& a, const std::string& b) {
    return place_in_model(a) < place_in_model(b);
  });
  return layers;
}

Table norm_table(const std::vector<Record>& records) {
  Table table({"layer", "mode", "T", "norms, ms per step", "share of the norms", "holds"});
  for (const std::string& layer : layers_of(records)) {
    for (const Record& record : records) {
      const std::vector<LayerNorm> norms = layer_norms(record);
      const double whole = whole_of(norms);
      for (const LayerNorm& norm : norms) {
        if (norm.layer != layer) continue;
        table.row({layer, record.mode, std::to_string(record.seq_length.value_or(0)),
                   fmt::format("{:.3f}", norm.ms),
                   whole > 0 ? fmt::format("{:.1f} %", 100 * norm.ms / whole) : "-",
                   norm.backward ? "norms and backward" : "norms"});
      }
    }
  }
  return table;
}

}  // namespace

std::vector<LayerNorm> layer_norms(const Record& record) {
  std::map<std::string, LayerNorm> found;
  for (const auto& [row, ms] : record.layer_ms) {
    const size_t blank = row.find(' ');
    const std::string op = row.substr(0, blank);
    if (blank == std::string::npos || blank + 1 == row.size() || !op.ends_with("norms")) continue;
    LayerNorm& norm = found[row.substr(blank + 1)];
    norm.layer = row.substr(blank + 1);
    norm.ms += ms;
    norm.backward = norm.backward || op.find("backward") != std::string::npos;
  }
  std::vector<LayerNorm> norms;
  for (const auto& [layer, norm] : found) norms.push_back(norm);
  std::sort(norms.begin(), norms.end(), [](const LayerNorm& a, const LayerNorm& b) {
    return place_in_model(a.layer) < place_in_model(b.layer);
  });
  return norms;
}

std::vector<Plot> layer_norm_plots(const std::vector<Record>& records) {
  const std::vector<std::string> layers = layers_of(records);
  if (layers.empty()) return {};
  Curves curves{.name = "norms_by_layer",
                .title = "Time of the norms, by layer",
                .x_axis = "layer, in the order of the model",
                .y_axis = "ms per step",
                .lines = {}};
  const size_t step = (layers.size() + kMostMarks - 1) / kMostMarks;
  for (size_t i = 0; i < layers.size(); i += step) {
    const size_t dot = layers[i].rfind('.');
    curves.x_names.emplace_back(static_cast<double>(i),
                                dot == std::string::npos ? layers[i] : layers[i].substr(dot + 1));
  }
  curves.x_end = static_cast<double>(std::max<size_t>(layers.size() - 1, 1));
  std::string spoken;
  for (size_t m = 0; m < records.size(); ++m) {
    ChartLine line{records[m].mode, mode_color(records[m].mode, m), {}};
    for (const LayerNorm& norm : layer_norms(records[m])) {
      const auto place = std::find(layers.begin(), layers.end(), norm.layer) - layers.begin();
      line.points.push_back({static_cast<double>(place), norm.ms});
    }
    if (line.points.empty()) continue;
    curves.lines.push_back(std::move(line));
    spoken += " " + layer_norm_words(records[m]);
  }
  return {Plot{curves.name, curves.title,
               std::string("What the per-sample norms of each layer take of a step at the longest "
                           "T of each mode.") +
                   (any_backward(records) ? " Where norms are computed within the backward pass, "
                                            "a point holds both."
                                          : ""),
               spoken, norm_table(records), curves_script(curves)}};
}

std::optional<PageTable> layer_norm_table(const std::vector<Record>& records) {
  Table table = norm_table(records);
  if (table.rows() == 0) return {};
  return PageTable{"Norms by layer",
                   "Milliseconds of a step that the per-sample norms of each layer take, at the "
                   "longest T of each mode",
                   std::move(table)};
}

std::string layer_norm_words(const Record& record) {
  const std::vector<LayerNorm> norms = layer_norms(record);
  const double whole = whole_of(norms);
  if (whole <= 0) return "";
  const auto most =
      std::max_element(norms.begin(), norms.end(),
                       [](const LayerNorm& a, const LayerNorm& b) { return a.ms < b.ms; });
  return fmt::format("Norms by layer, {}: {} takes most, {} of {} ({}){}.", record.mode,
                     most->layer, shown_ms(most->ms), shown_ms(whole),
                     percent_text(most->ms / whole), most->backward ? ", backward included" : "");
}

}  // namespace veil
