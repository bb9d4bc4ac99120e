#include "report/page_parts.h"

#include <fmt/core.h>

#include "base/build_info.h"
#include "base/quantity.h"
#include "report/drawing.h"
#include "report/html.h"

namespace veil {
namespace {

constexpr size_t kOpenPlots = 12;

std::string plot_figure(const Plot& plot, const std::string& pictures) {
  const std::string svg =
      inline_svg(pictures, plot.name, plot.title + ". " + plot.caption + plot.spoken);
  const std::string table = html_table(plot.figures, plot.title);
  return fmt::format(
      "<figure>\n<h3>{}</h3>\n{}<figcaption>{}</figcaption>\n{}</figure>\n", escaped(plot.title),
      svg, escaped(plot.caption),
      svg.empty() ? table
                  : "<details><summary>the figures as a table</summary>" + table + "</details>\n");
}

}  // namespace

std::string page_head(const std::string& kind, const std::string& question,
                      const std::string& headline) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<title>{0}: {1}</title>\n<style>{2}</style>\n</head>\n<body>\n<header>\n"
      "<div class=\"suite\">{0}</div>\n<h1>{1}</h1>\n<p class=\"headline\">{3}</p>\n</header>\n"
      "<main>\n",
      escaped(kind), escaped(question), kPageStyle, escaped(headline));
}

std::string page_section(const std::string& title, const std::string& body) {
  return body.empty() ? ""
                      : fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", escaped(title), body);
}

std::string page_caveats(const std::vector<std::string>& caveats) {
  if (caveats.empty()) return "";
  std::string out = "<div class=\"caveats\"><ul>\n";
  for (const std::string& words : caveats) out += "<li>" + escaped(words) + "</li>\n";
  return out + "</ul>\n</div>\n";
}

std::string page_cards(const std::vector<KeyFigure>& figures) {
  std::string out = "<div class=\"cards\">\n";
  for (const KeyFigure& figure : figures)
    out += fmt::format(
        "<div class=\"card\"><div class=\"name\">{}</div><div class=\"value\">{}</div><div "
        "class=\"who\">{}</div></div>\n",
        escaped(figure.name), escaped(figure.value), escaped(figure.who));
  return out + "</div>\n";
}

std::string page_plots(const std::vector<Plot>& plots, const std::string& pictures,
                       const std::string& plots_hint) {
  std::string out;
  if (!plots_hint.empty()) out += fmt::format("<p class=\"caveats\">{}</p>\n", escaped(plots_hint));
  out += "<div class=\"figures\">\n";
  const size_t open = plots.size() <= kOpenPlots + 2 ? plots.size() : kOpenPlots;
  for (size_t i = 0; i < open; ++i) out += plot_figure(plots[i], pictures);
  out += "</div>\n";
  if (open == plots.size()) return out;
  out += fmt::format(
      "<details class=\"box\"><summary>{}: {} and so on</summary>\n<div class=\"figures\">\n",
      quantity(static_cast<int64_t>(plots.size() - open), "more picture"),
      escaped(plots[open].title));
  for (size_t i = open; i < plots.size(); ++i) out += plot_figure(plots[i], pictures);
  return out + "</div>\n</details>\n";
}

std::string page_end(const std::string& source) {
  const BuildInfo& build = build_info();
  return fmt::format(
      "</main>\n<footer>Written by veil {}{} {}. GiB is 2^30 "
      "bytes.</footer>\n</body>\n</html>\n",
      escaped(build.version), build.commit.empty() ? "" : " (" + escaped(build.commit) + ")",
      escaped(source));
}

}  // namespace veil
