#include "models/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace veil {

using nlohmann::json;

namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kLargestHeader = 100'000'000;  // the format's own limit
constexpr const char* kMetadata = "__metadata__";

static_assert(std::endian::native == std::endian::little, "weight files are little-endian");

template <typename... Args>
[[noreturn]] void bad_file(const std::string& path, fmt::format_string<Args...> format,
                           Args&&... args) {
  user_error("'{}' is not a sound safetensors file: {}", path,
             fmt::format(format, std::forward<Args>(args)...));
}

// Refuses what the parser itself would let pass: a name given twice, and objects deeper than the
// format has them.
class HeaderGuard {
 public:
  explicit HeaderGuard(const std::string& path) : path_(path) {}

  bool operator()(int depth, json::parse_event_t event, json& parsed) {
    if (depth > 3) bad_file(path_, "its header is nested deeper than the format allows");
    if (event == json::parse_event_t::object_start) seen_[static_cast<size_t>(depth)].clear();
    if (event == json::parse_event_t::key) {
      const auto& name = parsed.get_ref<const std::string&>();
      // The event of a key carries the depth of its values.
      if (!seen_[static_cast<size_t>(depth) - 1].insert(name).second) {
        bad_file(path_, "tensor or key '{}' is there twice", printable(name));
      }
    }
    return true;
  }

 private:
  const std::string& path_;
  std::set<std::string> seen_[4];
};

int64_t natural(const json& value, const std::string& path, const std::string& name,
                const char* what) {
  // A negative number, a fraction and a number beyond 64 bits are of other types for the parser.
  if (!value.is_number_unsigned() ||
      value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
    bad_file(path, "tensor '{}': {} holds {}: allowed are whole numbers from 0 to 2^63-1",
             printable(name), what, printable(value.dump(), 40));
  }
  return value.get<int64_t>();
}

const json& member(const json& entry, const char* key, const std::string& path,
                   const std::string& name) {
  const auto found = entry.find(key);
  if (found == entry.end()) bad_file(path, "tensor '{}' has no '{}'", printable(name), key);
  return *found;
}

StoredTensor read_entry(const std::string& path, const std::string& name, const json& entry,
                        int64_t data_begin, int64_t data_bytes) {
  const std::string shown = printable(name);
  if (!entry.is_object()) bad_file(path, "tensor '{}' is not described by an object", shown);
  StoredTensor tensor{.name = name, .dtype = {}, .dims = {}, .elements = 1, .begin = 0, .end = 0};

  const json& dtype = member(entry, "dtype", path, name);
  bool known = false;
  for (const auto& type : names(StoredType{})) {
    if (!dtype.is_string() || dtype.get_ref<const std::string&>() != type.name) continue;
    tensor.dtype = type.value;
    known = true;
  }
  if (!known) {
    bad_file(path, "tensor '{}' has dtype {}: allowed are {}", shown, printable(dtype.dump(), 40),
             join(all_names<StoredType>(), ", "));
  }

  const json& shape = member(entry, "shape", path, name);
  if (!shape.is_array()) bad_file(path, "tensor '{}': its shape is not a list", shown);
  bool overflow = false, empty = false;
  for (const json& value : shape) {
    const int64_t dim = natural(value, path, name, "shape");
    tensor.dims.push_back(dim);
    empty = empty || dim == 0;
    overflow = __builtin_mul_overflow(tensor.elements, dim, &tensor.elements) || overflow;
  }
  int64_t bits = 0;
  overflow = __builtin_mul_overflow(tensor.elements, stored_bits(tensor.dtype), &bits) || overflow;
  if (overflow) {
    bad_file(path, "tensor '{}': shape {} has more {}elements than 64 bits count", shown,
             printable(shape_text(tensor.dims)), empty ? "(before its 0) " : "");
  }
  if (bits % 8 != 0) bad_file(path, "tensor '{}' ends inside a byte", shown);

  const json& offsets = member(entry, "data_offsets", path, name);
  if (!offsets.is_array() || offsets.size() != 2)
    bad_file(path, "tensor '{}': data_offsets is not [begin, end]", shown);
  const int64_t begin = natural(offsets[0], path, name, "data_offsets");
  const int64_t end = natural(offsets[1], path, name, "data_offsets");
  if (begin > end)
    bad_file(path, "tensor '{}' ends at {} before it begins at {}", shown, end, begin);
  if (end > data_bytes) {
    bad_file(path, "tensor '{}' ends at byte {} of {}: the file is cut or its header is wrong",
             shown, end, data_bytes);
  }
  if (end - begin != bits / 8) {
    bad_file(path, "tensor '{}': {} {} takes {} bytes, but its offsets span {}", shown,
             name_of(tensor.dtype), printable(shape_text(tensor.dims)), bits / 8, end - begin);
  }
  tensor.begin = data_begin + begin;
  tensor.end = data_begin + end;
  return tensor;
}

// The bytes behind the header belong to one tensor each.
void check_cover(const std::string& path, const std::vector<StoredTensor>& tensors,
                 int64_t data_begin, int64_t end) {
  int64_t reached = data_begin;
  const StoredTensor* before = nullptr;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.begin < reached) {
      bad_file(path, "tensor '{}' overlaps tensor '{}'", printable(tensor.name),
               printable(before->name));
    }
    if (tensor.begin > reached) {
      bad_file(path, "{} bytes before tensor '{}' belong to none", tensor.begin - reached,
               printable(tensor.name));
    }
    reached = tensor.end;
    before = &tensor;
  }
  if (reached != end) bad_file(path, "{} bytes at its end belong to no tensor", end - reached);
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) user_error("cannot read '{}': {}", path, std::strerror(errno));
  struct stat state {};
  const bool regular = fstat(descriptor, &state) == 0 && S_ISREG(state.st_mode);
  size_ = regular ? static_cast<size_t>(state.st_size) : 0;
  void* const mapped = size_ >= kLengthBytes
                           ? mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0)
                           : MAP_FAILED;
  const int error = errno;
  close(descriptor);
  if (!regular) user_error("cannot read '{}': it is not a file", path);
  if (size_ < kLengthBytes)
    bad_file(path, "it has {} bytes, fewer than its header's length takes", size_);
  if (mapped == MAP_FAILED)
    user_error("cannot map '{}' into memory: {}", path, std::strerror(error));
  data_ = static_cast<const std::byte*>(mapped);
  try {
    read_header();
  } catch (...) {  // a constructor that throws has no destructor
    munmap(mapped, size_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() {
  if (data_) munmap(const_cast<std::byte*>(data_), size_);
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(other.size_),
      tensors_(std::move(other.tensors_)),
      places_(std::move(other.places_)),
      metadata_(std::move(other.metadata_)) {}

void SafetensorsFile::read_header() {
  uint64_t length = 0;
  std::memcpy(&length, data_, sizeof length);
  if (length > kLargestHeader)
    bad_file(path_, "its header of {} bytes is longer than {}", length, kLargestHeader);
  if (length > size_ - kLengthBytes) {
    bad_file(path_, "its header of {} bytes is longer than the file of {}: the file is cut", length,
             size_);
  }
  const auto* const text = reinterpret_cast<const char*>(data_) + kLengthBytes;
  if (length == 0 || text[0] != '{') bad_file(path_, "its header is not a JSON object");
  json header;
  try {
    header = parse_json({text, length}, HeaderGuard(path_));
  } catch (const json::exception& error) {
    bad_file(path_, "its header is not JSON in UTF-8 ({})", printable(error.what()));
  }

  const auto data_begin = static_cast<int64_t>(kLengthBytes + length);
  const auto data_bytes = static_cast<int64_t>(size_) - data_begin;
  for (const auto& [name, entry] : header.items()) {
    if (name != kMetadata) {
      tensors_.push_back(read_entry(path_, name, entry, data_begin, data_bytes));
      continue;
    }
    if (!entry.is_object()) bad_file(path_, "{} is not an object", kMetadata);
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) bad_file(path_, "{}: '{}' is not text", kMetadata, printable(key));
      metadata_[key] = value.get<std::string>();
    }
  }
  std::stable_sort(tensors_.begin(), tensors_.end(),
                   [](const StoredTensor& a, const StoredTensor& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  check_cover(path_, tensors_, data_begin, static_cast<int64_t>(size_));
  for (size_t i = 0; i < tensors_.size(); ++i) places_[tensors_[i].name] = i;
}

const StoredTensor* SafetensorsFile::find(const std::string& name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &tensors_[found->second];
}

std::span<const std::byte> SafetensorsFile::bytes(const StoredTensor& tensor) const {
  VEIL_CHECK(
      tensor.begin >= 0 && tensor.begin <= tensor.end && static_cast<size_t>(tensor.end) <= size_,
      "tensor {} is of another file than {}", tensor.name, path_);
  return {data_ + tensor.begin, static_cast<size_t>(tensor.end - tensor.begin)};
}

int64_t source_bytes(const TensorSource& source) {
  int64_t bits = stored_bits(source.dtype);
  for (const int64_t dim : source.dims) {
    VEIL_CHECK(dim >= 0 && !__builtin_mul_overflow(bits, dim, &bits), "{} has shape {}",
               source.name, shape_text(source.dims));
  }
  VEIL_CHECK(bits % 8 == 0, "{} ends inside a byte", source.name);
  return bits / 8;
}

Sha256Digest write_safetensors(const std::string& path, const std::vector<TensorSource>& tensors) {
  std::vector<const TensorSource*> order;
  for (const TensorSource& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const TensorSource* a, const TensorSource* b) {
    return stored_bits(a->dtype) > stored_bits(b->dtype);
  });

  nlohmann::ordered_json header = {{kMetadata, {{"format", "pt"}}}};
  int64_t end = 0;
  for (const TensorSource* tensor : order) {
    const int64_t begin = end;
    VEIL_CHECK(!__builtin_add_overflow(end, source_bytes(*tensor), &end), "{} is too large", path);
    VEIL_CHECK(!header.contains(tensor->name), "tensor {} is written twice", tensor->name);
    header[tensor->name] = {
        {"dtype", name_of(tensor->dtype)}, {"shape", tensor->dims}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();

  return write_hashed_stream(path, [&](const AppendBytes& append) {
    append({reinterpret_cast<const char*>(&length), sizeof length});
    append(text);
    for (const TensorSource* tensor : order) {
      int64_t wrote = 0;
      tensor->produce([&](std::string_view piece) {
        wrote += static_cast<int64_t>(piece.size());
        append(piece);
      });
      VEIL_CHECK(wrote == source_bytes(*tensor), "{} bytes came for tensor {} {}", wrote,
                 tensor->name, shape_text(tensor->dims));
    }
  });
}

std::string shape_text(const std::vector<int64_t>& dims) {
  std::vector<std::string> parts;
  for (const int64_t dim : dims) parts.push_back(std::to_string(dim));
  return fmt::format("[{}]", join(parts, ", "));
}

}  // namespace veil
