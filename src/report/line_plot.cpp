#include "report/line_plot.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"

namespace veil {
namespace {

// In gnuplot's single-quoted strings a quote is doubled.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char letter : text) {
    result += letter;
    if (letter == '\'') result += letter;
  }
  return result + "'";
}

// Whether `gnuplot script` ran and ended well. Its words are not shown.
bool run_gnuplot(const std::string& script) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", O_WRONLY, 0);
  std::string program = "gnuplot", argument = script;
  char* const words[] = {program.data(), argument.data(), nullptr};
  pid_t child = 0;
  const int failed = posix_spawnp(&child, program.c_str(), &actions, nullptr, words, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed) return false;
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

std::string write_png(const LinePlot& plot, const std::string& path) {
  const std::string data = path + ".dat", script = path + ".gp";
  std::string numbers, lines;
  for (size_t i = 0; i < plot.curves.size(); ++i) {
    numbers += fmt::format("# {}\n", plot.curves[i].name);
    for (const auto& [x, y] : plot.curves[i].points) {
      if (std::isfinite(x) && std::isfinite(y)) numbers += fmt::format("{} {}\n", x, y);
    }
    numbers += "\n\n";  // gnuplot's mark of a new block
    lines += fmt::format("{}{} index {} with lines linewidth 2 title {}", i ? ", \\\n     " : "", quoted(data), i,
                         quoted(plot.curves[i].name));
  }
  write_file_atomically(data, numbers);
  write_file_atomically(
      script, fmt::format("set terminal pngcairo size 960,640 noenhanced\nset output {}\nset title {}\n"
                          "set xlabel {}\nset ylabel {}\nset grid\nset key left top\nplot {}\n",
                          quoted(path), quoted(plot.title), quoted(plot.x_label), quoted(plot.y_label), lines));
  if (!run_gnuplot(script)) {
    return fmt::format("{} is not made: gnuplot is missing or failed; `gnuplot {}` makes it", path, script);
  }
  std::filesystem::remove(data);
  std::filesystem::remove(script);
  return "";
}

}  // namespace veil
