// What a private run has done and is about to do, written before it does it, so that no noise is
// ever used on two gradients and no step goes uncounted.
//
//   <run>/secret        the run's secret, owner only; not there if --secret-file holds it
//   <run>/ledger.json   the accounting events, the nonce and what decides the steps under it; owner
//                       only
//
// Which nonce a run takes. Noise of step t under one nonce must meet one gradient only: equal noise
// on two sums cancels in their difference. So the nonce is kept only if the steps to come are
// those that it was drawn for, bit for bit: the same secret, data, settings, ranks, threads, build
// and processor (by a tag over all of them), on a device that computes alike each time, in the same
// folder, and from the very parameters that the segment started from or a checkpoint that it wrote,
// by their digests. Then steps that a crash took back are replayed, and count once. Anything else
// begins a new segment with a fresh nonce, and what the old one had begun stays counted. A copied
// folder is told by its inode and time of birth.
#pragma once

#include <map>
#include <nlohmann/json.hpp>

#include "privacy/ledger.h"
#include "privacy/secret.h"

namespace veil::privacy {

// The checkpoint that a run continues from; the default is a run's start.
struct JournalStart {
  int64_t steps = 0;
  std::string segment;  // the one that wrote it
  Ledger ledger;        // what it says was spent
  // Of its files; at a run's start of the parameters. "" if nothing can be replayed.
  std::string digest;
};

struct JournalInput {
  std::string folder;       // of the run; need not be there
  std::string secret_file;  // "": the run's own, drawn at its begin
  JournalStart start;
  nlohmann::json settings;  // everything but the data that decides the bits of a step
  std::string data;         // and the data: its digest
  bool replayable = false;  // whether equal settings make equal bits here
  NoiseGenerator generator = NoiseGenerator::secure;
};

class Journal {
 public:
  // Reads and decides; writes nothing. UserError if the mechanism cannot follow what came before.
  Journal(const Mechanism& mechanism, JournalInput input);

  // there is something before it: a checkpoint, or steps that were lost
  bool resumes() const { return resumes_; }
  bool replays() const { return replays_; }  // under the nonce that was there
  // of a run that continues with a fresh nonce: a phrase
  const std::string& why_fresh() const { return why_; }
  // begun before and now counted in addition to those that take their place
  int64_t lost_steps() const { return lost_; }
  const Ledger& ledger() const { return ledger_; }  // the last event is this run's
  const std::string& segment() const { return ledger_.events.back().segment; }
  const LedgerEvent& event() const { return ledger_.events.back(); }  // of this run's steps
  ChaChaKey key(KeyDomain domain) const { return derive_key(secret_, nonce_, domain); }
  const RunNonce& nonce() const { return nonce_; }

  // Under the folder's lock. UserError if another process went on in the folder since it was
  // read.
  void begin();
  // Before a step: if it is not yet counted, it and some more (about half a second's) are, on
  // disk, before this returns. None beyond `last`.
  void before_step(int64_t step, int64_t last);
  // A checkpoint's files are written and about to get their place: only from bytes that are known
  // here can its steps be replayed. Known are those of the newest `keep` and of one more.
  void checkpoint_written(int64_t step, const std::string& digest, int keep);
  // What a checkpoint of this step stores.
  Ledger ledger_at(int64_t step) const;
  // An orderly end after this step: what was reserved and not used is given back.
  void end(int64_t step);

 private:
  std::string path(const char* name) const;
  nlohmann::json stored() const;
  void decide(const Mechanism& mechanism);
  std::string difference(const nlohmann::json& before, const RunNonce& tag) const;
  void write() const;

  JournalInput input_;
  RunSecret secret_ = {};
  bool secret_is_new_ = false;
  RunNonce nonce_ = {}, tag_ = {};
  Ledger ledger_;
  std::string from_segment_, from_digest_;
  std::map<int64_t, std::string> checkpoints_;  // digests by step
  std::string found_;                           // ledger.json as it was read
  bool resumes_ = false, replays_ = false, begun_ = false;
  std::string why_;
  int64_t lost_ = 0;
  int64_t counted_before_ = 0;  // by this segment, before this process
  int64_t executed_ = 0;
  double first_ms_ = -1;
  int64_t first_step_ = 0;
};

// Whether the folder holds a private run's journal.
bool holds_journal(const std::string& folder);
// JournalInput::settings of its last segment, as the file has them and without a check; null if
// there is none that can be read.
nlohmann::json journal_settings(const std::string& folder);

}  // namespace veil::privacy
