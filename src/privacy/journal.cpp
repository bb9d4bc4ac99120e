#include "privacy/journal.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/quantity.h"
#include "base/text.h"

namespace veil::privacy {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kLedgerFile = "ledger.json";
constexpr const char* kSecretFile = "secret";
constexpr int kSchema = 2;               // 1 had no check value
constexpr const char* kCheck = "check";  // keyed by the secret
constexpr double kReserveSeconds = 0.5;
constexpr int64_t kReserveSteps = 4096;

// Of the folder itself: a copy has another one, and folders cannot be linked twice. A folder that
// is moved within its file system keeps it.
std::string folder_identity(const std::string& folder) {
  struct statx facts {};
  if (statx(AT_FDCWD, folder.c_str(), 0, STATX_INO | STATX_BTIME, &facts) != 0) return "";
  if (facts.stx_mask & STATX_BTIME)
    return fmt::format("{}/{}.{:09}", facts.stx_ino, facts.stx_btime.tv_sec,
                       facts.stx_btime.tv_nsec);
  return fmt::format("{}/{}:{}", facts.stx_ino, facts.stx_dev_major, facts.stx_dev_minor);
}

std::string shown(const Json& value) {
  const std::string text = value.is_null()     ? "not set"
                           : value.is_string() ? value.get<std::string>()
                                               : value.dump();
  return printable(text, 60);
}

std::string random_name() {
  return hex(draw_nonce().data(), 8);
}

// Of a run that may be repeated: the same each time, so that its events merge with themselves.
std::string repeated_name(const RunSecret& secret, const RunNonce& nonce) {
  SecretTag name(secret, "segment");
  name.add(hex(nonce.data(), nonce.size()));
  return hex(name.value().data(), 8);
}

// Every setting that differs, the first few by name; "" if none does.
std::string other_settings(const Json& before, const Json& now) {
  constexpr size_t kNamed = 3;
  std::vector<std::string> lines;
  size_t more = 0;
  Json all = before;
  all.update(now);
  for (const auto& [name, unused] : all.items()) {
    const Json was = before.value(name, Json()), is = now.value(name, Json());
    if (was == is && before.contains(name) == now.contains(name)) continue;
    if (lines.size() == kNamed) {
      ++more;
    } else if (was.is_object() && is.is_object()) {  // what follows from others, such as the plan
      lines.push_back(fmt::format("{} is other", name));
    } else {
      lines.push_back(fmt::format("{} is {}, it was {}", name, shown(is), shown(was)));
    }
  }
  if (more > 0)
    lines.push_back(fmt::format("and {}", quantity(static_cast<int64_t>(more), "more setting")));
  return join(lines, "; ");
}

// Of everything that a ledger says. Keys are sorted, so what was read gives what was written.
std::string check_value(const RunSecret& secret, Json ledger) {
  ledger.erase(kCheck);
  SecretTag tag(secret, "ledger");
  tag.add(ledger.dump());
  const RunNonce value = tag.value();
  return hex(value.data(), value.size());
}

// The ledger in a file's text. UserError if it is none, and if it is not as this secret's run wrote
// it: a changed sigma would be a changed epsilon. Under another secret, which a person gives,
// nothing can be checked. `own_secret`: the file of the run's own secret; "" if another is given.
Json read_ledger(const std::string& text, const RunSecret& secret, const std::string& where,
                 const std::string& own_secret) {
  const Json found = try_json(text);
  if (!found.is_object() || !found.contains("events"))
    user_error("{}: not a ledger; without it nobody knows what was spent", where);
  const Json schema = found.value("schema", Json());
  if (schema != 1 && schema != kSchema)
    user_error("{}: its schema is {}, this version of Veil reads 1 and {}", where, shown(schema),
               kSchema);
  const bool ours = found.value("secret", Json()) == fingerprint(secret);
  if (ours && schema != 1 && found.value(kCheck, Json()) != check_value(secret, found))
    user_error(
        "{}: damaged or changed since Veil wrote it; restore it, for without it nobody knows "
        "what was spent",
        where);
  if (!ours && !own_secret.empty())
    user_error(
        "{} and {} do not belong together: one of them is damaged or of another run; restore it, "
        "or pass `secret_file` if the run was continued under another secret",
        own_secret, where);
  return found;
}

}  // namespace

bool holds_journal(const std::string& folder) {
  return fs::exists(fs::path(folder) / kLedgerFile);
}

Json journal_settings(const std::string& folder) {
  if (!holds_journal(folder)) return {};
  const Json found = try_json(read_file(join_path(folder, kLedgerFile)));
  return found.is_object() ? found.value("settings", Json()) : Json();
}

std::string Journal::path(const char* name) const {
  return join_path(input_.folder, name);
}

Journal::Journal(const Mechanism& mechanism, JournalInput input) : input_(std::move(input)) {
  const bool own = input_.secret_file.empty();
  secret_is_new_ = own && !fs::exists(path(kSecretFile));
  secret_ = !own             ? read_secret(input_.secret_file)
            : secret_is_new_ ? draw_secret()
                             : read_secret(path(kSecretFile));
  SecretTag tag(secret_, "replay");
  tag.add(input_.settings.dump());
  tag.add(input_.data);
  tag_ = tag.value();
  if (holds_journal(input_.folder)) {
    found_ = read_file(path(kLedgerFile));
    // An empty file is a ledger that was lost, not a run that has none.
    if (found_.empty()) read_ledger(found_, secret_, path(kLedgerFile), "");
  } else if (own && !secret_is_new_ && !input_.start.ledger.events.empty()) {
    user_error(
        "{}: missing, so nobody knows which steps were begun after the checkpoint; restore "
        "it, or continue a copy of the checkpoint in a new folder",
        path(kLedgerFile));
  }
  try {
    decide(mechanism);
  } catch (const Json::exception&) {
    // Only of an earlier version or under another secret: any other has a check value.
    user_error("{}: damaged, a value is of another kind than Veil writes; restore it",
               path(kLedgerFile));
  }
}

// What stands between this run and an exact replay of the segment before; "" if nothing does.
std::string Journal::difference(const Json& before, const RunNonce& tag) const {
  const Json from = before.value("from", Json::object());
  const std::string segment = before.value("segment", std::string());
  const std::string& digest = input_.start.digest;
  const bool written_by_it = input_.start.segment == segment;
  const bool where_it_began = input_.start.segment == from.value("segment", std::string()) &&
                              from.value("steps", Json()) == input_.start.steps;
  if (before.value("folder", std::string()) != folder_identity(input_.folder))
    return "this folder is a copy";
  if (before.value("secret", std::string()) != fingerprint(secret_)) return "the secret is another";
  if (before.value("schema", Json()) != kSchema)
    return "an earlier version of Veil wrote the ledger";
  if (!written_by_it && !where_it_began)
    return "the newest checkpoint is not of the run's last segment";
  if (!input_.replayable) return "this device may round otherwise the second time";
  if (where_it_began && digest != from.value("digest", std::string()))
    return "it starts from other parameters";
  const Json known = before.value("checkpoints", Json::object());
  if (written_by_it && known.value(std::to_string(input_.start.steps), Json()) != digest)
    return "the checkpoint is not as the run wrote it";
  const std::string others =
      other_settings(before.value("settings", Json::object()), input_.settings);
  if (!others.empty()) return others;
  if (before.value("tag", std::string()) != hex(tag.data(), tag.size())) return "the data is other";
  return "";
}

void Journal::decide(const Mechanism& mechanism) {
  const std::string where = path(kLedgerFile);
  Json before;
  Ledger done = input_.start.ledger;
  if (!found_.empty()) {
    const bool own = input_.secret_file.empty() && !secret_is_new_;
    before = read_ledger(found_, secret_, where, own ? path(kSecretFile) : "");
    done = merged(ledger_from_json(before["events"], where), input_.start.ledger);
  }
  resumes_ = !done.events.empty();
  LedgerEvent event = ledger_event(mechanism, input_.generator, random_name(), input_.start.steps);
  done.check_follows(event);
  ledger_ = done;
  ledger_.base = mechanism.request().base;
  if (!found_.empty() && !done.events.empty()) {
    // What only a checkpoint knew of stands behind the journal's own events.
    why_ = done.events.back().segment == before.value("segment", std::string())
               ? difference(before, tag_)
               : "the checkpoint is of another run";
    const std::string nonce = before.value("nonce", std::string());
    if (why_.empty() && !from_hex(nonce, nonce_.data(), nonce_.size()))
      why_ = "the ledger holds no nonce";
    replays_ = why_.empty();
  } else if (resumes_) {
    why_ = "the folder holds a checkpoint without its ledger";
  }
  if (replays_) {
    from_segment_ = before["from"].value("segment", std::string());
    from_digest_ = before["from"].value("digest", std::string());
    const Json known = before.value("checkpoints", Json::object());
    for (const auto& [name, digest] : known.items()) {
      // Later ones are gone: a run continues from its newest checkpoint.
      const int64_t step = std::strtoll(name.c_str(), nullptr, 10);
      if (step <= input_.start.steps) checkpoints_[step] = digest.get<std::string>();
    }
    counted_before_ = ledger_.events.back().reached;
    return;
  }
  for (const LedgerEvent& earlier : done.events)
    lost_ = std::max(lost_, earlier.reached - input_.start.steps);
  // A given secret makes a new run repeatable: its nonce follows from all that decides its steps,
  // so it comes again with the same steps only.
  const bool repeatable = !input_.secret_file.empty() && input_.replayable && !resumes_;
  nonce_ = draw_nonce();
  if (repeatable) {
    SecretTag follows(secret_, "nonce");
    follows.add(hex(tag_.data(), tag_.size()));
    follows.add(input_.start.digest);
    nonce_ = follows.value();
    event.segment = repeated_name(secret_, nonce_);
  }
  from_segment_ = input_.start.segment;
  from_digest_ = input_.start.digest;
  ledger_.events.push_back(event);
  counted_before_ = event.first;
}

Json Journal::stored() const {
  const LedgerEvent& event = ledger_.events.back();
  Json checkpoints = Json::object();
  for (const auto& [step, digest] : checkpoints_) checkpoints[std::to_string(step)] = digest;
  Json ledger = {
      {"schema", kSchema},
      {"events", ledger_json(ledger_)},
      {"segment", event.segment},
      {"from", {{"segment", from_segment_}, {"steps", event.first}, {"digest", from_digest_}}},
      {"checkpoints", checkpoints},
      {"nonce", hex(nonce_.data(), nonce_.size())},
      {"tag", hex(tag_.data(), tag_.size())},
      {"secret", fingerprint(secret_)},
      {"folder", folder_identity(input_.folder)},
      {"settings", input_.settings}};
  ledger[kCheck] = check_value(secret_, ledger);
  return ledger;
}

void Journal::write() const {
  write_file_atomically(path(kLedgerFile), stored().dump(1) + "\n", /*owner_only=*/true);
}

void Journal::begin() {
  const std::string now = holds_journal(input_.folder) ? read_file(path(kLedgerFile)) : "";
  const bool secret_came = secret_is_new_ && fs::exists(path(kSecretFile));
  if (now != found_ || secret_came)
    user_error("{}: another process trained here just now; start again", input_.folder);
  if (secret_is_new_) write_secret(path(kSecretFile), secret_);
  begun_ = true;
  write();
}

void Journal::before_step(int64_t step, int64_t last) {
  VEIL_CHECK(begun_, "a step before the journal was begun");
  VEIL_CHECK(step <= last, "step {} where {} are allowed", step, last);
  const double now = steady_ms();
  if (first_ms_ < 0) {
    first_ms_ = now;
    first_step_ = step;
  }
  executed_ = std::max(executed_, step);
  int64_t& reached = ledger_.events.back().reached;
  if (step <= reached) return;
  const double done = static_cast<double>(step - first_step_), seconds = (now - first_ms_) / 1e3;
  const double rate = done > 0 ? done / std::max(1e-6, seconds) : 0;
  const auto more =
      std::clamp(static_cast<int64_t>(rate * kReserveSeconds), int64_t{1}, kReserveSteps);
  reached = std::min(last, step - 1 + more);
  write();
}

void Journal::checkpoint_written(int64_t step, const std::string& digest, int keep) {
  VEIL_CHECK(begun_, "a checkpoint before the journal was begun");
  checkpoints_[step] = digest;
  // One more: a process that is killed now leaves the one before as its newest.
  while (std::ssize(checkpoints_) > keep + 1) checkpoints_.erase(checkpoints_.begin());
  write();
}

Ledger Journal::ledger_at(int64_t step) const {
  Ledger result = ledger_;
  result.events.back().reached = std::max(counted_before_, step);
  return result;
}

void Journal::end(int64_t step) {
  VEIL_CHECK(begun_ && step >= executed_, "an end at step {}, {} were begun", step, executed_);
  ledger_ = ledger_at(step);
  write();
}

}  // namespace veil::privacy
