#include <algorithm>

#include "base/error.h"
#include "comm/collectives.h"
#include "comm/mpi_lane.h"

namespace veil {
namespace {

constexpr size_t kStagingBytes = 8 << 20;
constexpr int kHeaderTag = 1, kDataTag = 2;

size_t slot_bytes_for(int size) {
  return std::max<size_t>(kStagingBytes / (2 * static_cast<size_t>(size)) / 4096 * 4096, 4096);
}

MpiTask duplicate(MpiWorker& worker, MPI_Comm& comm) {
  std::vector<MPI_Request> requests(1);
  check_mpi(MPI_Comm_idup(MPI_COMM_WORLD, &comm, requests.data()), "MPI_Comm_idup");
  while (!worker.completed(requests)) co_await kTurn;
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
}

MpiTask release(MPI_Comm comm) {
  check_mpi(MPI_Comm_free(&comm), "MPI_Comm_free");
  co_return;
}

}  // namespace

RawTensor::RawTensor(const Tensor& tensor)
    : data(static_cast<std::byte*>(tensor.data_ptr())),
      count(tensor.numel()),
      element_bytes(tensor.element_size()),
      dtype(tensor.scalar_type()) {}

std::string describe(const CallHeader& header) {
  static constexpr const char* kNames[] = {"barrier", "all_gather", "reduce_scatter", "all_reduce",
                                           "broadcast"};
  if (header.kind == CallHeader::barrier) return kNames[0];
  std::string text = fmt::format("{} of {} {}", kNames[header.kind], header.count,
                                 dtype_name(static_cast<DType>(header.dtype)));
  if (header.kind == CallHeader::broadcast) text += fmt::format(" from rank {}", header.root);
  return text;
}

// ---- Steps ----

// Everyone's header reaches everyone.
class MpiLane::Agreement {
 public:
  Agreement(MpiLane& lane, const CallHeader& mine)
      : lane_(lane), mine_(mine), headers_(static_cast<size_t>(lane.size_)) {
    for (int p = 0; p < lane.size_; ++p) {
      if (p == lane.rank_) continue;
      lane.receive(&headers_[static_cast<size_t>(p)], sizeof mine_, p, kHeaderTag, requests_);
    }
    for (int p = 0; p < lane.size_; ++p) {
      if (p != lane.rank_) lane.send(&mine_, sizeof mine_, p, kHeaderTag, requests_);
    }
  }

  bool done() {
    if (!lane_.worker_.completed(requests_)) return false;
    for (int p = 0; p < lane_.size_; ++p) {
      const CallHeader& theirs = headers_[static_cast<size_t>(p)];
      VEIL_CHECK(p == lane_.rank_ || theirs == mine_,
                 "ranks disagree: rank {} called {}, rank {} called {}", lane_.rank_,
                 describe(mine_), p, describe(theirs));
    }
    return true;
  }

 private:
  MpiLane& lane_;
  CallHeader mine_;
  std::vector<CallHeader> headers_;
  std::vector<MPI_Request> requests_;
};

// out = sum over ranks of their own piece of `whole`, in rank order. The next round's messages are
// under way while this round is added.
class MpiLane::Sum {
 public:
  Sum(MpiLane& lane, RawTensor whole, Pieces pieces, std::byte* out)
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
      if (!lane_.worker_.completed(requests_[round_ % 2])) return false;
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
    auto& requests = requests_[round % 2];
    const auto mine = static_cast<size_t>(length(lane_.rank_, round)) * element;
    for (int p = 0; p < lane_.size_; ++p) {
      if (p != lane_.rank_ && mine > 0)
        lane_.receive(incoming(p, round), mine, p, kDataTag, requests);
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
      lane_.send(staged() ? lane_.staging_.slot(p) : source(p, round), theirs, p, kDataTag,
                 requests);
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

  MpiLane& lane_;
  RawTensor whole_;
  Pieces pieces_;
  std::byte* out_;
  int64_t chunk_ = 0, rounds_ = 0, round_ = 0, posted_ = 0;
  std::vector<MPI_Request> requests_[2];
};

// Every rank's own piece of `whole` reaches everyone.
class MpiLane::Gather {
 public:
  Gather(MpiLane& lane, RawTensor whole, Pieces pieces)
      : lane_(lane), whole_(whole), pieces_(pieces) {
    // On CPU nothing passes through a slot; a message is kept below what MPI's int counts.
    const size_t most = staged() ? lane.staging_.slot_bytes() : size_t{1} << 30;
    chunk_ = static_cast<int64_t>(most / whole.element_bytes);
    rounds_ = (pieces.step + chunk_ - 1) / chunk_;
    if (rounds_ > 0) post();
  }

  bool done() {
    while (round_ < rounds_) {
      if (!lane_.worker_.completed(requests_)) return false;
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
      lane_.receive(staged() ? lane_.staging_.slot(p) : place(p), bytes(p), p, kDataTag, requests_);
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
      if (p != lane_.rank_) lane_.send(from, mine, p, kDataTag, requests_);
    }
  }

  MpiLane& lane_;
  RawTensor whole_;
  Pieces pieces_;
  int64_t chunk_ = 0, rounds_ = 0, round_ = 0;
  std::vector<MPI_Request> requests_;
};

// The root's data reaches everyone.
class MpiLane::Spread {
 public:
  Spread(MpiLane& lane, RawTensor data, int root) : lane_(lane), data_(data), root_(root) {
    total_ = static_cast<size_t>(data.count) * data.element_bytes;
    chunk_ = staged() ? lane.staging_.slot_bytes() : size_t{1} << 30;
    if (total_ > 0) post();
  }

  bool done() {
    while (offset_ < total_) {
      if (!lane_.worker_.completed(requests_)) return false;
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
    if (lane_.rank_ != root_) return lane_.receive(memory, bytes(), root_, kDataTag, requests_);
    if (staged()) {
      StreamGuard guard(lane_.stream_);
      copy_bytes(memory, data_.data + offset_, bytes(), lane_.device_);
      drain_current_stream(lane_.device_);
    }
    for (int p = 0; p < lane_.size_; ++p) {
      if (p != root_) lane_.send(memory, bytes(), p, kDataTag, requests_);
    }
  }

  MpiLane& lane_;
  RawTensor data_;
  int root_;
  size_t total_ = 0, chunk_ = 0, offset_ = 0;
  std::vector<MPI_Request> requests_;
};

// ---- The lane ----

MpiLane::MpiLane(MpiWorker& worker, int lane, Device device)
    : worker_(worker),
      queue_(worker.new_queue()),
      device_(device),
      rank_(worker.rank()),
      size_(worker.size()),
      stream_(Stream::create(device)),
      staging_(device, 2 * worker.size(), slot_bytes_for(worker.size())) {
  worker_.post(queue_, [this] { return duplicate(worker_, comm_); }).get();
  worker_.post(queue_, [this, lane] { return agree_on_lane(lane); }).get();
}

MpiLane::~MpiLane() {
  try {
    worker_.post(queue_, [comm = comm_] { return release(comm); }).get();
  } catch (const std::exception&) {  // the world has ended; so has the communicator
  }
}

void MpiLane::send(const void* data, size_t bytes, int to, int tag,
                   std::vector<MPI_Request>& requests) {
  requests.emplace_back();
  check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, comm_, &requests.back()),
            "MPI_Isend");
}

void MpiLane::receive(void* data, size_t bytes, int from, int tag,
                      std::vector<MPI_Request>& requests) {
  requests.emplace_back();
  check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag, comm_, &requests.back()),
            "MPI_Irecv");
}

void MpiLane::begin(const Moments& moments) {
  if (device_.is_cuda()) gpu_device(device_.index());
  StreamGuard guard(stream_);
  if (!moments.start.empty()) moments.start.wait();
  if (Marker began = moments.began; !began.empty()) began.record();
}

void MpiLane::end(const Moments& moments) {
  StreamGuard guard(stream_);
  if (Marker ended = moments.ended; !ended.empty()) ended.record();
  drain_current_stream(device_);
}

MpiTask MpiLane::agree_on_lane(int lane) {
  Agreement agreement(*this, {CallHeader::barrier, 0, 0, lane});
  while (!agreement.done()) co_await kTurn;
}

MpiTask MpiLane::barrier() {
  Agreement agreement(*this, {});
  while (!agreement.done()) co_await kTurn;
}

MpiTask MpiLane::all_gather(RawTensor shard, RawTensor whole, Moments moments) {
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

MpiTask MpiLane::reduce_scatter(RawTensor whole, RawTensor shard, Moments moments) {
  begin(moments);
  Agreement agreement(
      *this, {CallHeader::reduce_scatter, static_cast<int64_t>(shard.dtype), shard.count, 0});
  while (!agreement.done()) co_await kTurn;
  Sum sum(*this, whole, {whole.count, shard.count, shard.count}, shard.data);
  while (!sum.done()) co_await kTurn;
  end(moments);
}

MpiTask MpiLane::all_reduce(RawTensor data, Moments moments) {
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

MpiTask MpiLane::broadcast(RawTensor data, int root, Moments moments) {
  begin(moments);
  Agreement agreement(*this,
                      {CallHeader::broadcast, static_cast<int64_t>(data.dtype), data.count, root});
  while (!agreement.done()) co_await kTurn;
  Spread spread(*this, data, root);
  while (!spread.done()) co_await kTurn;
  end(moments);
}

}  // namespace veil
