// An options file in TOML, or, if the first line is "arguments", a command line with an argument in
// each line.
#include "base/utf8.h"
#include "cli/options.h"
#include "fuzz/fuzz.h"

namespace {

enum class Colour { red, green };
const veil::NameTable<Colour>& names(Colour) {
  static const veil::NameTable<Colour> table = {{Colour::red, "red"}, {Colour::green, "green"}};
  return table;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace veil;
  std::string_view text = fuzz::text_of(data, size);
  int64_t steps = 1;
  double rate = 0.1;
  bool flag = false;
  std::string name = "x", secret;
  std::optional<double> sigma;
  std::vector<int64_t> list;
  Colour colour = Colour::red;
  Options options("fuzz", "options of every kind");
  options.add("steps", steps, {.aliases = {"num_steps"}, .minimum = 1});
  options.add("rate", rate, {.minimum = 0, .maximum = 1});
  options.add("flag", flag);
  options.add("name", name);
  options.add("token", secret, {.secret = true});
  options.add("sigma", sigma, {.bare = "1.5"});
  options.add("seq", list);
  options.add("colour", colour);
  options.preset("tiny", {{"steps", "2"}});
  fuzz::allow_user_error([&] {
    std::vector<std::string> arguments;
    if (text.starts_with("arguments\n")) {
      fuzz::take_line(text);
      while (!text.empty()) arguments.emplace_back(fuzz::take_line(text));
      // The commands refuse these before they are parsed (cli/command.cpp).
      for (const std::string& argument : arguments) {
        if (find_invalid_utf8(argument) != std::string::npos) return;
      }
    } else {
      arguments = {"--config", fuzz::input_file("options.toml", text)};
    }
    if (!options.parse(arguments)) return;
    fuzz::require(steps >= 1 && rate >= 0 && rate <= 1, "values are within their limits");
    options.table();
    options.json().dump();
    options.command_line();
  });
  return 0;
}
