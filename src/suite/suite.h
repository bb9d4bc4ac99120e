// A suite is a question that several experiments answer. It is a value, made by one file of this
// folder: its settings, the experiments they become, and how the records are shown. suites() lists
// them; `veil suite` and `veil report` find them there by name.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "nn/attention.h"
#include "report/suite_page.h"
#include "run/clip_choice.h"
#include "run/config.h"
#include "shard/options.h"
#include "suite/sweep.h"

namespace veil {

// A setting that only this suite has. The field's value is the default.
struct SuiteOption {
  using Field =
      std::variant<bool*, std::string*, std::vector<std::string>*, std::vector<int64_t>*,
                   std::vector<Strategy>*, std::vector<Mode>*, std::vector<AttentionKind>*>;
  std::string name;  // replaces a setting of `veil profile` of the same name
  Field field;
  std::vector<std::string> aliases = {};
  std::string help = "";
  std::optional<double> minimum = {}, maximum = {};
  std::string value = "";  // what help calls the value
  bool secret = false;
  // The setting of `veil profile` that the list replaces unless it is empty.
  std::string instead_of = "";

  bool is_list() const;
  bool is_empty_list() const;
};

struct RefusedSettings {
  std::vector<std::string> names;
  std::string why;
};

// What a suite may need to know about the command.
struct SuiteCall {
  std::function<bool(const std::string& setting)> given;  // by the user, rather than by default
  bool dry_run = false;
};

struct Suite {
  std::string name, help;
  SuitePage page = {};
  // What all experiments share; its values here are the suite's defaults.
  RunConfig config = {};
  std::string output_dir = "results";  // parent of the folders of its runs
  bool private_step = false;           // takes the settings of a private step
  std::vector<SuiteOption> options = {};
  std::vector<RefusedSettings> refused = {};
  // Settings that are passed to every experiment even if the user did not give them, because the
  // suite changes their defaults.
  std::vector<std::string> told = {};
  // Called after parsing: completes `config` and throws UserError for what could not be run.
  // Returns notices for the user.
  std::function<std::vector<std::string>(RunConfig&, const SuiteCall&)> prepare = {};
  // `common` are arguments of `veil profile` that all experiments share. UserError if a value is
  // given twice.
  std::function<std::vector<Experiment>(const std::vector<std::string>& common)> experiments;

  // Settings that are not passed to experiments: the suite's own, and those that a list replaces.
  std::vector<std::string> kept_back() const;
};

// Every suite, with its own copy of the settings. find_suite: UserError if there is none.
std::vector<Suite> suites();
Suite find_suite(const std::string& name);
std::vector<SuitePage> suite_pages();

// "--batch-size 4 (3.00 GiB, fits)" of a record in the words of this suite's options, as
// "--batch-sizes 4 (3.00 GiB, fits)"; "" if the suite refuses one of them.
std::string accepted_remedy(const Suite& suite, const std::string& remedy);

// A preset may simulate a world; ranks that are given with it are started instead. Answers the
// notice. Without a preset, both together are an error.
std::vector<std::string> prefer_real_ranks(RunConfig& config, const SuiteCall& call);

// UserError if the configuration contradicts itself, or does not fit the machine.
void check_shared(const RunConfig& config);

// MissingBackend, with a hint at the tiny preset, for a large model if no GPU answers, unless the
// CPU was requested.
void check_machine(const RunConfig& config, const std::string& suite);

// A rough estimate of how long an experiment takes, without running it: steps as they are
// predicted, the start by the size of the model.
double estimated_seconds(RunConfig config);

// Appends `common` to the arguments of each experiment. UserError if two have the same name; `what`
// says which values may have been given twice.
std::vector<Experiment> with_common(std::vector<Experiment> experiments,
                                    const std::vector<std::string>& common,
                                    const std::string& what);

}  // namespace veil
