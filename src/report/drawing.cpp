#include "report/drawing.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <regex>

#include "base/files.h"
#include "base/outputs.h"
#include "base/shell_word.h"
#include "report/html.h"

namespace veil {

namespace {

struct Drawing {
  int spawn_error = 0;  // errno if it could not be started
  int status = 0;       // as waitpid gives it
};

// gnuplot's own output is dropped; the line that draw_plots returns says how to see it.
Drawing run_gnuplot(const std::string& folder, const std::string& script) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string program = "gnuplot", words = script;
  std::array<char*, 3> arguments = {program.data(), words.data(), nullptr};
  pid_t child = 0;
  Drawing drawing;
  drawing.spawn_error =
      posix_spawnp(&child, "gnuplot", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (drawing.spawn_error == 0) {
    while (waitpid(child, &drawing.status, 0) < 0 && errno == EINTR) {
    }
  }
  return drawing;
}

// In gnuplot's single-quoted strings a quote is doubled.
std::string single_quoted(const std::string& text) {
  std::string result = "'";
  for (const char letter : text) {
    result += letter;
    if (letter == '\'') result += letter;
  }
  return result + "'";
}

// "", or why there are no pictures.
std::string drawn_by_gnuplot(const std::vector<Plot>& plots, const std::string& folder) {
  std::string failed;
  for (const Plot& plot : plots) {
    const Drawing drawing = run_gnuplot(folder, plot.name + ".gp");
    if (drawing.spawn_error == ENOENT)
      return "no pictures, for gnuplot is missing: `apt-get install gnuplot-nox`, then `veil "
             "report` draws them";
    if (drawing.spawn_error != 0)
      return fmt::format("no pictures, for gnuplot cannot be started: {}",
                         std::strerror(drawing.spawn_error));
    if (drawing.status != 0 && failed.empty()) failed = plot.name;
  }
  if (failed.empty()) return "";
  return fmt::format("gnuplot did not draw '{0}': `cd {1} && gnuplot {0}.gp` says why", failed,
                     shell_word(folder));
}

}  // namespace

void check_plots(const std::vector<Plot>& plots, const std::string& folder, bool overwrite) {
  for (const Plot& plot : plots) {
    for (const char* const ending : {".gp", ".svg", ".png"})
      check_output_file(join_path(folder, plot.name + ending), overwrite);
  }
}

std::string draw_plots(const std::vector<Plot>& plots, const std::string& folder, bool overwrite) {
  check_plots(plots, folder, overwrite);
  std::error_code ignored;
  for (const Plot& plot : plots) {
    write_listed_file(join_path(folder, plot.name + ".gp"), plot.script, overwrite);
    // Remove pictures of an earlier script.
    for (const char* const ending : {".svg", ".png"}) {
      const std::string picture = join_path(folder, plot.name + ending);
      std::filesystem::remove(picture, ignored);
      expect_output_file(picture);
    }
  }
  const std::string trouble = drawn_by_gnuplot(plots, folder);
  for (const Plot& plot : plots) {
    for (const char* const ending : {".svg", ".png"})
      list_output_file(join_path(folder, plot.name + ending));
  }
  return trouble;
}

std::string inline_svg(const std::string& folder, const std::string& name,
                       const std::string& label) {
  const std::string path = join_path(folder, name + ".svg");
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return "";
  std::string svg = read_file(path);
  const auto strip = [&](const char* pattern, const char* by) {
    svg = std::regex_replace(svg, std::regex(pattern), by);
  };
  // Long pieces are cut by hand, because std::regex recurses over them.
  const auto cut = [&](const std::string& from, const std::string& to) {
    const size_t start = svg.find(from), end = svg.find(to, start == std::string::npos ? 0 : start);
    if (start != std::string::npos && end != std::string::npos)
      svg.erase(start, end + to.size() - start);
  };
  std::smatch box;
  if (!std::regex_search(svg, box, std::regex("viewBox=\"([0-9. ]+)\""))) return "";
  const std::string view = box[1];
  const size_t open = svg.find("<svg"), body = svg.find('>', open);
  if (open == std::string::npos || body == std::string::npos) return "";
  svg.erase(0, body + 1);
  cut("<defs>", "</defs>");  // marks for points, which no plot uses
  cut("<desc>", "</desc>");
  strip("<title>[^<]*</title>", "");
  strip(" id=\"[^\"]*\"", "");
  strip("rgb\\( *118, *118, *118\\)", "var(--plot-ink)");
  strip("fill=\"black\"", "fill=\"var(--plot-ink)\"");
  strip("\n[ \t]*\n+", "\n");
  return fmt::format("<svg viewBox=\"{}\" role=\"img\" aria-label=\"{}\">{}", view, escaped(label),
                     svg);
}

void check_png(const std::string& path, bool overwrite) {
  for (const char* const ending : {"", ".dat", ".gp"}) check_output_file(path + ending, overwrite);
}

std::string write_png(const LinePlot& plot, const std::string& path, bool overwrite) {
  check_png(path, overwrite);
  const std::string data = path + ".dat", script = path + ".gp";
  std::string numbers, lines;
  for (size_t i = 0; i < plot.curves.size(); ++i) {
    numbers += fmt::format("# {}\n", plot.curves[i].name);
    for (const auto& [x, y] : plot.curves[i].points) {
      if (std::isfinite(x) && std::isfinite(y)) numbers += fmt::format("{} {}\n", x, y);
    }
    numbers += "\n\n";  // gnuplot's mark of a new block
    lines += fmt::format("{}{} index {} with lines linewidth 2 title {}", i ? ", \\\n     " : "",
                         single_quoted(data), i, single_quoted(plot.curves[i].name));
  }
  write_listed_file(data, numbers, overwrite);
  write_listed_file(
      script,
      fmt::format("set terminal pngcairo size 960,640 noenhanced\nset output {}\nset title {}\n"
                  "set xlabel {}\nset ylabel {}\nset grid\nset key below\nplot {}\n",
                  single_quoted(path), single_quoted(plot.title), single_quoted(plot.x_label),
                  single_quoted(plot.y_label), lines),
      overwrite);
  const Drawing drawing = run_gnuplot(".", script);
  if (drawing.spawn_error != 0 || drawing.status != 0) {
    return fmt::format("{} is not made: gnuplot is missing or failed; `gnuplot {}` makes it", path,
                       script);
  }
  list_output_file(path);
  std::filesystem::remove(data);
  std::filesystem::remove(script);
  return "";
}

}  // namespace veil
