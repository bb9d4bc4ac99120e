// What a schedule's parts rest on, decided once before they are built.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "step/builder.h"

namespace veil {

void Builder::choose_access() {
  const bool sharded = options_.world > 1 && options_.strategy != Strategy::ddp;
  gathers_ = sharded;
  const bool wide = options_.storage == at::kDouble;
  schedule_.trained = stored(options_.storage, ParamAccess::refreshed);
  schedule_.frozen = stored(wide ? options_.storage : options_.compute, ParamAccess::resident);
}

// `sharded`: how parameters are reached that zero2 stores whole.
Schedule::Stored Builder::stored(DType dtype, ParamAccess sharded) const {
  const bool as_stored = dtype == options_.compute && !options_.offload_params;
  Schedule::Stored stored;
  stored.dtype = dtype;
  if (options_.strategy == Strategy::zero3 && !(as_stored && !gathers_)) {
    stored.access = ParamAccess::per_use;
  } else if (!as_stored) {
    stored.access = ParamAccess::per_step;
  } else {
    stored.access = gathers_ ? sharded : ParamAccess::resident;
  }
  stored.whole = !gathers_ || stored.access == sharded;
  return stored;
}

void Builder::choose_lowest() {
  int& lowest = schedule_.lowest_trained;
  while (lowest < blocks() && shape_.blocks[lowest].reports.empty()) ++lowest;
}

void Builder::choose_gradients() {
  const bool several = options_.micro_batches > 1 || options_.varying;
  const DType sums = clips() ? options_.reduce : options_.accumulate();
  ddp_ = options_.strategy == Strategy::ddp;
  schedule_.reduces = options_.world > 1;
  if (several && clips_by(privacy::PassKind::keep))
    schedule_.combine_every = options_.varying
                                  ? options_.clip->combine_every
                                  : std::min(options_.clip->combine_every, options_.micro_batches);
  // Whole gradients that outlive the body: summed over the micro-batches, reduced once in the tail.
  accumulates_whole_ =
      several && (ddp_ || !schedule_.reduces || options_.accumulate_in == AccumulateIn::whole ||
                  combines_several());
  // Summed shards that outlive the body.
  accumulates_shard_ = several && !accumulates_whole_;
  schedule_.accumulates_whole = accumulates_whole_;
  schedule_.grad_dtype = accumulates_whole_ ? sums : options_.reduce;
  schedule_.grad_shard_dtype =
      accumulates_shard_ || into_shard() ? (several ? sums : options_.reduce) : options_.reduce;
  wired_ = schedule_.reduces && accumulates_whole_ && options_.reduce != schedule_.grad_dtype;
}

// A rank needs the sum of all samples' clipped gradients over its own shard. If ranks send each other
// the samples' gradients, they can do so while backward runs, and nothing is summed twice: a sum
// waits for the last norm, a gradient does not. Units of which something is booked are summed.
void Builder::choose_exchange() {
  const bool keeps = clips_by(privacy::PassKind::keep);
  std::string& why_not = schedule_.not_exchanged;
  int64_t sent = 0, trained = 0;
  std::vector<bool> whole;
  for (int u = 0; u < units(); ++u) {
    whole.push_back(!frozen(u) && keeps && !has_booked_[u]);
    if (!frozen(u)) trained += unit(u).numel;
    if (whole.back()) sent += unit(u).numel;
  }
  if (!clips()) {
    why_not = "the step is not private";
  } else if (!schedule_.reduces || ddp_) {
    why_not = "gradients are not sharded";
  } else if (!keeps) {
    why_not = "none are kept (pass_plan: keep)";
  } else if (options_.clip->layers) {
    why_not = "layers have clip norms of their own";
  } else if (accumulates_whole_) {
    why_not = "micro-batches are summed whole (accumulate: shard, combine_every: 1)";
  } else if (sent == 0) {
    why_not = "a part of every unit is booked";
  } else {
    const bool no_heavier =
        shape_.batch * dtype_bytes(options_.compute) <= dtype_bytes(options_.reduce);
    const bool wanted = options_.exchange == Exchange::kept ||
                        (options_.exchange == Exchange::automatic && no_heavier &&
                         2 * sent > trained && !schedule_.defers_update);
    if (wanted) {
      schedule_.exchanged = std::move(whole);
      if (std::exchange(schedule_.defers_update, false))
        schedule_.not_deferred = "ranks exchange kept gradients during backward already";
    }
  }
  if (options_.exchange != Exchange::kept) why_not.clear();
}

// Outputs that two blocks read, or a condition that all do.
bool Builder::blocks_share_bookings() const {
  return shape_.condition ||
         std::any_of(shape_.blocks.begin(), shape_.blocks.end(),
                     [](const BlockShape& block) { return block.keeps_output; });
}

// The tail can wait if all that it reads lies in buffers of its own: whole sums, kept gradients, or
// what was booked.
void Builder::choose_deferral() {
  if (!options_.defer_update || !schedule_.reduces) return;
  const bool keeps = clips_by(privacy::PassKind::keep),
             books = clips_by(privacy::PassKind::book) && !accumulates_whole_;
  std::string& why_not = schedule_.not_deferred;
  if (options_.grad_norm) {
    why_not = "the norm of the whole gradient is taken first";
  } else if (options_.offload_params || options_.offload_optimizer) {
    why_not = "parameters or optimizer state are in host memory";
  } else if (accumulates_shard_) {
    why_not = "micro-batches are summed in shards (accumulate: whole)";
  } else if (books && checkpointed()) {
    why_not = "what was booked is read beside activations that are made again";
  } else if (books && blocks_share_bookings()) {
    why_not = "blocks share what they booked, and let it go from the last one on";
  } else if (!accumulates_whole_ && !keeps && !books) {
    why_not = "gradients are reduced during backward already";
  } else {
    schedule_.defers_update = true;
  }
}

// Every parameter must reach a rule, and no other than a tied table may be reported twice: it would
// be clipped as two.
void Builder::check_reports() const {
  std::vector<int> reports(shape_.params.size(), 0);
  auto count = [&](const BlockShape& block) {
    for (const Report& report : block.reports) {
      for (ParamId id : covered(report)) ++reports[static_cast<size_t>(id)];
    }
  };
  for (const BlockShape& block : shape_.blocks) count(block);
  count(shape_.loss);
  for (size_t id = 0; id < reports.size(); ++id) {
    if (reports[id] == 0 && !shape_.params[id].frozen)
      user_error("{}: no clipping rule covers this parameter, so it cannot be trained privately",
                 shape_.params[id].name);
    if (reports[id] > 1 && static_cast<ParamId>(id) != schedule_.tied_table)
      user_error("{}: two layers share this parameter in a way that no clipping rule covers",
                 shape_.params[id].name);
  }
}

void Builder::choose_clipping() {
  const privacy::ClipMethod& method = *options_.clip;
  if (method.pass == privacy::PassKind::per_layer && !method.layers)
    field_error("pass_plan",
                "per-layer: each layer needs a clip norm of its own, as the clip "
                "function per-layer has");
  if (options_.grad_norm)
    user_error(
        "the norm of a private step's sum is not private: it is neither taken nor used to scale "
        "the update");
  schedule_.layers = privacy::clip_layers(shape_, method.layers);
  for (const Report& head : shape_.loss.reports) {
    for (int b = 0; b < blocks() && head.by == Report::By::linear; ++b) {
      for (const Report& report : shape_.blocks[b].reports) {
        if (report.by != Report::By::embedding || report.param != head.param) continue;
        schedule_.tied_table = head.param;
        tied_block_ = b;
        tied_tokens_ = report.tokens;
        tied_rows_bytes_ = report.samples * report.tokens * head.columns *
                           dtype_bytes(sum_dtype(options_.compute));
      }
    }
  }
  check_reports();
  schedule_.remakes_tape.clear();
  schedule_.books_nothing.clear();
  for (const BlockShape& block : shape_.blocks) {
    const bool reads_inputs =
        std::any_of(block.reports.begin(), block.reports.end(),
                    [](const Report& report) { return report.by == Report::By::linear; });
    schedule_.books_nothing.push_back(books() && block.reports.empty() && !block.keeps_output);
    schedule_.remakes_tape.push_back(checkpointed() && clips_by(privacy::PassKind::book) &&
                                     reads_inputs);
  }
  schedule_.booked_param.assign(shape_.params.size(), false);
  if (method.pass == privacy::PassKind::keep) choose_booked();
}

// The parameter, and those joined behind it that its rows run on into.
std::vector<ParamId> Builder::covered(const Report& report) const {
  std::vector<ParamId> ids;
  int64_t left = std::max<int64_t>(1, report.numel);
  for (auto id = static_cast<size_t>(report.param); left > 0 && id < shape_.params.size(); ++id) {
    if (!ids.empty() && !shape_.params[id].joined) break;
    ids.push_back(static_cast<ParamId>(id));
    left -= shape_.params[id].numel();
  }
  return ids;
}

// keep: what is booked all the same.
void Builder::choose_booked() {
  books_table_.assign(static_cast<size_t>(blocks()), false);
  booked_copies_.assign(static_cast<size_t>(blocks()), 0);
  most_with_copies_.assign(static_cast<size_t>(blocks()), 0);
  for (int b = 0; b < blocks(); ++b) {
    const BlockShape& block = shape_.blocks[b];
    const int64_t largest = block.backward_scratch_bytes + block.input_grad_bytes;
    std::vector<std::pair<int64_t, int64_t>> copied;  // what lives at most from then on, and copies
    for (const Report& report : block.reports) {
      // Of a table that a sample reads one row of, a sample's gradient is made like any other's. So
      // is a block's second table, of positions: it is small, and its ids are the block's own.
      const bool table = report.by == Report::By::embedding && report.tokens > 1 &&
                         report.param != schedule_.tied_table && !books_table_[b];
      // Copies are made if there is room for them when they are.
      const int64_t copies =
          report.samples * (report.rows + report.columns) * dtype_bytes(options_.compute);
      const bool product =
          report.by == Report::By::linear && report.tokens == 1 && trained_units(b).size() == 1 &&
          report.live_bytes + copies + report_scratch(report, GradUse::norm) <= largest;
      if (!table && !product) continue;
      for (ParamId id : covered(report)) schedule_.booked_param[static_cast<size_t>(id)] = true;
      if (table) books_table_[b] = true;
      if (product) copied.emplace_back(std::max(report.live_bytes, report.later_bytes), copies);
    }
    // Those that are made later meet less.
    std::sort(copied.rbegin(), copied.rend());
    for (const auto& [live, copies] : copied) {
      booked_copies_[b] += copies;
      most_with_copies_[b] = std::max(most_with_copies_[b], live + booked_copies_[b]);
    }
  }
  has_booked_.assign(static_cast<size_t>(units()), false);
  for (int u = 0; u < units(); ++u) {
    for (const ParamSlot& slot : unit(u).slots)
      has_booked_[u] = has_booked_[u] || schedule_.booked_param[static_cast<size_t>(slot.param)];
  }
}

// keep: where the others lie in a unit's buffer.
void Builder::place_kept() {
  schedule_.kept_offset.assign(shape_.params.size(), -1);
  schedule_.kept_numel.assign(static_cast<size_t>(units()), 0);
  for (int u = 0; u < units(); ++u) {
    int64_t& end = schedule_.kept_numel[static_cast<size_t>(u)];
    for (const ParamSlot& slot : unit(u).slots) {
      const auto id = static_cast<size_t>(slot.param);
      if (schedule_.booked_param[id] || frozen(u)) continue;
      if (schedule_.exchanges(u)) end = slot.offset;
      schedule_.kept_offset[id] = end;
      end += slot.numel;
    }
    if (schedule_.exchanges(u)) {  // cut like the parameters
      end = unit(u).padded_numel;
      continue;
    }
    // numbers that a kernel reads at once: every sample's row begins where it may
    constexpr int64_t kTogether = 16;
    end = (end + kTogether - 1) / kTogether * kTogether;
  }
}

}  // namespace veil
