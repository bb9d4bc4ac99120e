// A run's ledger.json, read by a run that continues in its folder. FINGERPRINT stands for that of the
// run's secret.
#include "base/files.h"
#include "fuzz/fuzz.h"
#include "privacy/journal.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace veil;
  using namespace veil::privacy;
  static const Mechanism mechanism = [] {
    MechanismRequest request;
    request.data_size = 1000;
    request.q = 0.01;
    request.sigma = 1;
    request.clip_norm = 1;
    request.steps = 100;
    request.delta = 1e-5;
    request.accountant = AccountantKind::rdp;
    return make_mechanism(request);
  }();
  static const std::string secret = [] {
    const std::string path = fuzz::work_folder() + "/secret";
    write_file_atomically(path, std::string(64, '7'), /*owner_only=*/true);
    return path;
  }();
  static const std::string fingerprint = privacy::fingerprint(read_secret(secret));
  std::string text(fuzz::text_of(data, size));
  constexpr std::string_view kName = "FINGERPRINT";
  if (const size_t at = text.find(kName); at != std::string::npos)
    text.replace(at, kName.size(), fingerprint);
  fuzz::input_file("ledger.json", text);
  fuzz::allow_user_error([&] {
    JournalInput input;
    input.folder = fuzz::work_folder();
    input.secret_file = secret;
    input.settings = {{"learning-rate", 0.1}};
    input.data = "the data";
    input.replayable = true;
    input.start.digest = "the initial parameters";
    const Journal journal(mechanism, input);
    fuzz::require(journal.lost_steps() >= 0, "no step is given back");
    fuzz::require(journal.ledger().steps() >= 0, "steps are counted");
  });
  return 0;
}
