#include "comm/host_lane.h"

#include <algorithm>

#include "base/error.h"
#include "comm/collectives.h"

namespace veil {
namespace {

constexpr size_t kStagingBytes = 8 << 20;

size_t slot_bytes_for(int size) {
  return std::max<size_t>(kStagingBytes / (2 * static_cast<size_t>(size)) / 4096 * 4096, 4096);
}

RankTask release_channel(std::unique_ptr<Channel>& channel) {
  channel.reset();
  co_return;
}

}  // namespace

RawTensor::RawTensor(const Tensor& tensor)
    : data(static_cast<std::byte*>(tensor.data_ptr())),
      count(tensor.numel()),
      element_bytes(tensor.element_size()),
      dtype(tensor.scalar_type()) {}

std::string describe(const CallHeader& header) {
  static constexpr const char* kNames[] = {"barrier",    "all_gather", "reduce_scatter",
                                           "all_to_all", "all_reduce", "broadcast"};
  if (header.kind == CallHeader::barrier) return kNames[0];
  std::string text = fmt::format("{} of {} {}", kNames[header.kind], header.count,
                                 dtype_name(static_cast<DType>(header.dtype)));
  if (header.kind == CallHeader::all_to_all) text += fmt::format(" in {} rows", header.root);
  if (header.kind == CallHeader::broadcast) text += fmt::format(" from rank {}", header.root);
  return text;
}

// ---- Steps ----

// Everyone's header reaches everyone.
class HostLane::Agreement {
 public:
  Agreement(HostLane& lane, const CallHeader& mine)
      : lane_(lane), mine_(mine), headers_(static_cast<size_t>(lane.size_)) {
    for (int p = 0; p < lane.size_; ++p) {
      if (p == lane.rank_) continue;
      messages_->receive(&headers_[static_cast<size_t>(p)], sizeof mine_, p);
    }
    for (int p = 0; p < lane.size_; ++p) {
      if (p != lane.rank_) messages_->send(&mine_, sizeof mine_, p);
    }
  }

  bool done() {
    if (!lane_.worker_.completed(*messages_)) return false;
    for (int p = 0; p < lane_.size_; ++p) {
      const CallHeader& theirs = headers_[static_cast<size_t>(p)];
      VEIL_CHECK(p == lane_.rank_ || theirs == mine_,
                 "ranks disagree: rank {} called {}, rank {} called {}", lane_.rank_,
                 describe(mine_), p, describe(theirs));
    }
    return true;
  }

 private:
  HostLane& lane_;
  CallHeader mine_;
  std::vector<CallHeader> headers_;
  std::unique_ptr<Transfers> messages_ = lane_.channel_->transfers();
};

// out = sum over ranks of their own piece of `whole`, in rank order. The next round's messages are
// under way while this round is added.
class HostLane::Sum {
 public:
  Sum(HostLane& lane, RawTensor whole, Pieces pieces, std::byte* out)
      : lane_(lane), whole_(whole), pieces_(pieces), out_(out) {
    chunk_ = static_cast<int64_t>(lane.staging_.slot_bytes() / whole.element_bytes);
    rounds_ = (pieces.step + chunk_ - 1) / chunk_;
    if (rounds_ > 0) post(0);
  }

  bool done() {
    while (round_ < rounds_) {
      // A GPU's data takes both halves of the slots, one to send from and one to receive into: one
      // round at a time.
      if (!staged() && posted_ == round_ + 1 && posted_ < rounds_) post(posted_);
      if (!lane_.worker_.completed(*messages_[round_ % 2])) return false;
      add(round_);
      ++round_;
      if (staged() && round_ < rounds_) post(round_);
    }
    return true;
  }

 private:
  bool staged() const { return lane_.device_.is_cuda(); }
  int64_t length(int rank, int64_t round) const {
    return std::clamp<int64_t>(pieces_.size(rank) - round * chunk_, 0, chunk_);
  }
  std::byte* source(int rank, int64_t round) const {
    return whole_.at(pieces_.begin(rank) + round * chunk_);
  }
  std::byte* incoming(int rank, int64_t round) const {
    return lane_.staging_.slot(rank + (staged() || round % 2 ? lane_.size_ : 0));
  }

  void post(int64_t round) {
    const size_t element = whole_.element_bytes;
    const auto& messages = messages_[round % 2];
    const auto mine = static_cast<size_t>(length(lane_.rank_, round)) * element;
    for (int p = 0; p < lane_.size_; ++p) {
      if (p != lane_.rank_ && mine > 0) messages->receive(incoming(p, round), mine, p);
    }
    if (staged()) {
      StreamGuard guard(lane_.stream_);
      for (int p = 0; p < lane_.size_; ++p) {
        copy_bytes(lane_.staging_.slot(p), source(p, round),
                   static_cast<size_t>(length(p, round)) * element, lane_.device_);
      }
      drain_current_stream(lane_.device_);
    }
    for (int p = 0; p < lane_.size_; ++p) {
      const auto theirs = static_cast<size_t>(length(p, round)) * element;
      if (p == lane_.rank_ || theirs == 0) continue;
      messages->send(staged() ? lane_.staging_.slot(p) : source(p, round), theirs, p);
    }
    posted_ = round + 1;
  }

  void add(int64_t round) {
    const int64_t count = length(lane_.rank_, round);
    if (count == 0) return;
    std::byte* own = staged() ? lane_.staging_.slot(lane_.rank_) : source(lane_.rank_, round);
    std::vector<const void*> terms;
    for (int p = 0; p < lane_.size_; ++p)
      terms.push_back(p == lane_.rank_ ? own : incoming(p, round));
    std::byte* target = out_ + static_cast<size_t>(round * chunk_) * whole_.element_bytes;
    sum_in_rank_order(whole_.dtype, terms, staged() ? own : target, count);
    if (!staged()) return;
    StreamGuard guard(lane_.stream_);
    copy_bytes(target, own, static_cast<size_t>(count) * whole_.element_bytes, lane_.device_);
    drain_current_stream(lane_.device_);
  }

  HostLane& lane_;
  RawTensor whole_;
  Pieces pieces_;
  std::byte* out_;
  int64_t chunk_ = 0, rounds_ = 0, round_ = 0, posted_ = 0;
  std::unique_ptr<Transfers> messages_[2] = {lane_.channel_->transfers(),
                                             lane_.channel_->transfers()};
};

// Every rank's own piece of `whole` reaches everyone.
class HostLane::Gather {
 public:
  Gather(HostLane& lane, RawTensor whole, Pieces pieces)
      : lane_(lane), whole_(whole), pieces_(pieces) {
    // On CPU nothing passes through a slot; a message is kept below what MPI's int counts.
    const size_t most = staged() ? lane.staging_.slot_bytes() : size_t{1} << 30;
    chunk_ = static_cast<int64_t>(most / whole.element_bytes);
    rounds_ = (pieces.step + chunk_ - 1) / chunk_;
    if (rounds_ > 0) post();
  }

  bool done() {
    while (round_ < rounds_) {
      if (!lane_.worker_.completed(*messages_)) return false;
      if (staged()) {
        StreamGuard guard(lane_.stream_);
        for (int p = 0; p < lane_.size_; ++p) {
          if (p != lane_.rank_)
            copy_bytes(place(p), lane_.staging_.slot(p), bytes(p), lane_.device_);
        }
        drain_current_stream(lane_.device_);
      }
      if (++round_ < rounds_) post();
    }
    return true;
  }

 private:
  bool staged() const { return lane_.device_.is_cuda(); }
  std::byte* place(int rank) const { return whole_.at(pieces_.begin(rank) + round_ * chunk_); }
  size_t bytes(int rank) const {
    return static_cast<size_t>(
               std::clamp<int64_t>(pieces_.size(rank) - round_ * chunk_, 0, chunk_)) *
           whole_.element_bytes;
  }

  void post() {
    for (int p = 0; p < lane_.size_; ++p) {
      if (p == lane_.rank_ || bytes(p) == 0) continue;
      messages_->receive(staged() ? lane_.staging_.slot(p) : place(p), bytes(p), p);
    }
    const size_t mine = bytes(lane_.rank_);
    if (mine == 0) return;
    std::byte* from = place(lane_.rank_);
    if (staged()) {
      StreamGuard guard(lane_.stream_);
      copy_bytes(lane_.staging_.slot(lane_.rank_), from, mine, lane_.device_);
      drain_current_stream(lane_.device_);
      from = lane_.staging_.slot(lane_.rank_);
    }
    for (int p = 0; p < lane_.size_; ++p) {
      if (p != lane_.rank_) messages_->send(from, mine, p);
    }
  }

  HostLane& lane_;
  RawTensor whole_;
  Pieces pieces_;
  int64_t chunk_ = 0, rounds_ = 0, round_ = 0;
  std::unique_ptr<Transfers> messages_ = lane_.channel_->transfers();
};

// Of every rank's rows each rank receives its own columns. One row at a time, in rounds as long as a
// slot if the data is a GPU's: half of the slots to send from, the others to receive into.
class HostLane::Exchange {
 public:
  Exchange(HostLane& lane, RawTensor rows, RawTensor received, int64_t count)
      : lane_(lane), rows_(rows), received_(received), count_(count) {
    columns_ = count == 0 ? 0 : static_cast<size_t>(rows.count / count / lane.size_);
    columns_ *= rows.element_bytes;
    chunk_ = staged() ? lane.staging_.slot_bytes() : size_t{1} << 30;
    if (more()) post();
  }

  bool done() {
    while (more()) {
      if (!lane_.worker_.completed(*messages_)) return false;
      if (staged()) {
        StreamGuard guard(lane_.stream_);
        for (int p = 0; p < lane_.size_; ++p) {
          if (p != lane_.rank_) copy_bytes(target(p), incoming(p), bytes(), lane_.device_);
        }
        drain_current_stream(lane_.device_);
      }
      offset_ += bytes();
      if (offset_ == columns_) ++row_, offset_ = 0;
      if (more()) post();
    }
    return true;
  }

 private:
  bool staged() const { return lane_.device_.is_cuda(); }
  bool more() const { return columns_ > 0 && row_ < count_; }
  size_t bytes() const { return std::min(chunk_, columns_ - offset_); }
  std::byte* source(int rank) const {
    return rows_.data + static_cast<size_t>(row_ * lane_.size_ + rank) * columns_ + offset_;
  }
  std::byte* target(int rank) const {
    return received_.data + static_cast<size_t>(rank * count_ + row_) * columns_ + offset_;
  }
  std::byte* incoming(int rank) const { return lane_.staging_.slot(lane_.size_ + rank); }

  void post() {
    {
      StreamGuard guard(lane_.stream_);
      copy_bytes(target(lane_.rank_), source(lane_.rank_), bytes(), lane_.device_);
      for (int p = 0; p < lane_.size_ && staged(); ++p) {
        if (p != lane_.rank_) copy_bytes(lane_.staging_.slot(p), source(p), bytes(), lane_.device_);
      }
      if (staged()) drain_current_stream(lane_.device_);
    }
    for (int p = 0; p < lane_.size_; ++p) {
      if (p != lane_.rank_) messages_->receive(staged() ? incoming(p) : target(p), bytes(), p);
    }
    for (int p = 0; p < lane_.size_; ++p) {
      if (p != lane_.rank_)
        messages_->send(staged() ? lane_.staging_.slot(p) : source(p), bytes(), p);
    }
  }

  HostLane& lane_;
  RawTensor rows_, received_;
  int64_t count_, row_ = 0;
  size_t columns_ = 0, chunk_ = 0, offset_ = 0;  // in bytes
  std::unique_ptr<Transfers> messages_ = lane_.channel_->transfers();
};

// The root's data reaches everyone.
class HostLane::Spread {
 public:
  Spread(HostLane& lane, RawTensor data, int root) : lane_(lane), data_(data), root_(root) {
    total_ = static_cast<size_t>(data.count) * data.element_bytes;
    chunk_ = staged() ? lane.staging_.slot_bytes() : size_t{1} << 30;
    if (total_ > 0) post();
  }

  bool done() {
    while (offset_ < total_) {
      if (!lane_.worker_.completed(*messages_)) return false;
      if (staged() && lane_.rank_ != root_) {
        StreamGuard guard(lane_.stream_);
        copy_bytes(data_.data + offset_, lane_.staging_.slot(0), bytes(), lane_.device_);
        drain_current_stream(lane_.device_);
      }
      offset_ += bytes();
      if (offset_ < total_) post();
    }
    return true;
  }

 private:
  bool staged() const { return lane_.device_.is_cuda(); }
  size_t bytes() const { return std::min(chunk_, total_ - offset_); }

  void post() {
    std::byte* memory = staged() ? lane_.staging_.slot(0) : data_.data + offset_;
    if (lane_.rank_ != root_) return messages_->receive(memory, bytes(), root_);
    if (staged()) {
      StreamGuard guard(lane_.stream_);
      copy_bytes(memory, data_.data + offset_, bytes(), lane_.device_);
      drain_current_stream(lane_.device_);
    }
    for (int p = 0; p < lane_.size_; ++p) {
      if (p != root_) messages_->send(memory, bytes(), p);
    }
  }

  HostLane& lane_;
  RawTensor data_;
  int root_;
  size_t total_ = 0, chunk_ = 0, offset_ = 0;
  std::unique_ptr<Transfers> messages_ = lane_.channel_->transfers();
};

// ---- The lane ----

HostLane::HostLane(RankWorker& worker, int lane, Device device)
    : worker_(worker),
      queue_(worker.new_queue()),
      device_(device),
      rank_(worker.rank()),
      size_(worker.size()),
      stream_(Stream::create(device)),
      staging_(device, 2 * worker.size(), slot_bytes_for(worker.size())) {
  const TaskName name{[] { return "the opening of a communicator"; }, current_place()};
  worker_
      .post(
          queue_, [this] { return worker_.wire().open(channel_); }, name)
      .get();
  worker_
      .post(
          queue_, [this, lane] { return agree_on_lane(lane); }, name)
      .get();
}

HostLane::~HostLane() {
  try {
    worker_.post(queue_, [this] { return release_channel(channel_); }).get();
  } catch (const std::exception&) {  // the world has ended; so has the communicator
  }
}

void HostLane::begin(const Moments& moments) {
  if (device_.is_cuda()) gpu_device(device_.index());
  StreamGuard guard(stream_);
  if (!moments.start.empty()) moments.start.wait();
  if (Marker began = moments.began; !began.empty()) began.record();
}

void HostLane::end(const Moments& moments) {
  StreamGuard guard(stream_);
  if (Marker ended = moments.ended; !ended.empty()) ended.record();
  drain_current_stream(device_);
}

RankTask HostLane::agree_on_lane(int lane) {
  Agreement agreement(*this, {CallHeader::barrier, 0, 0, lane});
  while (!agreement.done()) co_await kTurn;
}

RankTask HostLane::barrier() {
  Agreement agreement(*this, {});
  while (!agreement.done()) co_await kTurn;
}

RankTask HostLane::all_gather(RawTensor shard, RawTensor whole, Moments moments) {
  begin(moments);
  Agreement agreement(*this,
                      {CallHeader::all_gather, static_cast<int64_t>(shard.dtype), shard.count, 0});
  while (!agreement.done()) co_await kTurn;
  std::byte* own = whole.at(rank_ * shard.count);
  if (own != shard.data) {
    StreamGuard guard(stream_);
    copy_bytes(own, shard.data, static_cast<size_t>(shard.count) * shard.element_bytes, device_);
  }
  Gather gather(*this, whole, {whole.count, shard.count, shard.count});
  while (!gather.done()) co_await kTurn;
  end(moments);
}

RankTask HostLane::reduce_scatter(RawTensor whole, RawTensor shard, Moments moments) {
  begin(moments);
  Agreement agreement(
      *this, {CallHeader::reduce_scatter, static_cast<int64_t>(shard.dtype), shard.count, 0});
  while (!agreement.done()) co_await kTurn;
  Sum sum(*this, whole, {whole.count, shard.count, shard.count}, shard.data);
  while (!sum.done()) co_await kTurn;
  end(moments);
}

RankTask HostLane::all_to_all(RawTensor rows, RawTensor received, int64_t count, Moments moments) {
  begin(moments);
  const int64_t columns = count == 0 ? 0 : rows.count / count;
  Agreement agreement(*this,
                      {CallHeader::all_to_all, static_cast<int64_t>(rows.dtype), columns, count});
  while (!agreement.done()) co_await kTurn;
  Exchange exchange(*this, rows, received, count);
  while (!exchange.done()) co_await kTurn;
  end(moments);
}

RankTask HostLane::all_reduce(RawTensor data, Moments moments) {
  begin(moments);
  Agreement agreement(*this,
                      {CallHeader::all_reduce, static_cast<int64_t>(data.dtype), data.count, 0});
  while (!agreement.done()) co_await kTurn;
  if (static_cast<size_t>(data.count) * data.element_bytes <= staging_.slot_bytes()) {
    // Short: everyone sends everything and adds everything, in one round.
    Sum sum(*this, data, {data.count, 0, data.count}, data.data);
    while (!sum.done()) co_await kTurn;
  } else {
    const int64_t piece = (data.count + size_ - 1) / size_;
    const Pieces pieces{data.count, piece, piece};
    Sum sum(*this, data, pieces, data.at(pieces.begin(rank_)));
    while (!sum.done()) co_await kTurn;
    Gather gather(*this, data, pieces);
    while (!gather.done()) co_await kTurn;
  }
  end(moments);
}

RankTask HostLane::broadcast(RawTensor data, int root, Moments moments) {
  begin(moments);
  Agreement agreement(*this,
                      {CallHeader::broadcast, static_cast<int64_t>(data.dtype), data.count, root});
  while (!agreement.done()) co_await kTurn;
  Spread spread(*this, data, root);
  while (!spread.done()) co_await kTurn;
  end(moments);
}

}  // namespace veil
