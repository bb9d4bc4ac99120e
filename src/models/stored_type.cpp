#include "models/stored_type.h"

#include <bit>
#include <cstring>

namespace veil {

const NameTable<StoredType>& names(StoredType) {
  static const NameTable<StoredType> table = {
      {StoredType::f64, "F64"},         {StoredType::f32, "F32"},
      {StoredType::f16, "F16"},         {StoredType::bf16, "BF16"},
      {StoredType::i64, "I64"},         {StoredType::i32, "I32"},
      {StoredType::i16, "I16"},         {StoredType::i8, "I8"},
      {StoredType::u64, "U64"},         {StoredType::u32, "U32"},
      {StoredType::u16, "U16"},         {StoredType::u8, "U8"},
      {StoredType::boolean, "BOOL"},    {StoredType::c64, "C64"},
      {StoredType::f8_e4m3, "F8_E4M3"}, {StoredType::f8_e5m2, "F8_E5M2"},
      {StoredType::f8_e8m0, "F8_E8M0"}, {StoredType::f6_e2m3, "F6_E2M3"},
      {StoredType::f6_e3m2, "F6_E3M2"}, {StoredType::f4, "F4"}};
  return table;
}

int64_t stored_bits(StoredType type) {
  switch (type) {
    case StoredType::f64:
    case StoredType::i64:
    case StoredType::u64:
    case StoredType::c64:
      return 64;
    case StoredType::f32:
    case StoredType::i32:
    case StoredType::u32:
      return 32;
    case StoredType::f16:
    case StoredType::bf16:
    case StoredType::i16:
    case StoredType::u16:
      return 16;
    case StoredType::i8:
    case StoredType::u8:
    case StoredType::boolean:
    case StoredType::f8_e4m3:
    case StoredType::f8_e5m2:
    case StoredType::f8_e8m0:
      return 8;
    case StoredType::f6_e2m3:
    case StoredType::f6_e3m2:
      return 6;
    case StoredType::f4:
      return 4;
  }
  check_failed(__FILE__, __LINE__, "type", "a stored type without a size");
}

bool is_convertible(StoredType type) {
  return type == StoredType::f64 || type == StoredType::f32 || type == StoredType::f16 ||
         type == StoredType::bf16;
}

namespace {

// The formats of 16 bits: sign, exponent, `kMantissa` bits.
template <int kMantissa>
double decode(uint16_t code) {
  constexpr int kExponent = 15 - kMantissa, kBias = (1 << (kExponent - 1)) - 1;
  const uint64_t sign = uint64_t{code} >> 15 << 63, magnitude = code & 0x7FFFu;
  const uint64_t exponent = magnitude >> kMantissa, mantissa = magnitude & ((1u << kMantissa) - 1);
  if (exponent == 0) {  // subnormal: mantissa * 2^(1 - bias - kMantissa)
    const double value = static_cast<double>(mantissa) *
                         std::bit_cast<double>(uint64_t{1023 + 1 - kBias - kMantissa} << 52);
    return sign ? -value : value;
  }
  const uint64_t wide = exponent == (1u << kExponent) - 1 ? 0x7FF : exponent + 1023 - kBias;
  return std::bit_cast<double>(sign | wide << 52 | mantissa << (52 - kMantissa));
}

// To the nearest, ties to even. A carry out of the mantissa moves the exponent up, and the largest
// number to infinity, as it should.
uint64_t shift_rounded(uint64_t value, int shift) {
  if (shift > 63) return 0;
  const uint64_t kept = value >> shift, rest = value & ((uint64_t{1} << shift) - 1),
                 half = uint64_t{1} << (shift - 1);
  return kept + (rest > half || (rest == half && (kept & 1)) ? 1 : 0);
}

template <int kMantissa>
uint16_t encode(double value) {
  constexpr int kExponent = 15 - kMantissa, kBias = (1 << (kExponent - 1)) - 1;
  constexpr uint64_t kInfinity = uint64_t{(1u << kExponent) - 1} << kMantissa;
  const auto bits = std::bit_cast<uint64_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 63 << 15);
  const uint64_t magnitude = bits & ~(uint64_t{1} << 63);
  const auto exponent = static_cast<int>(magnitude >> 52) - 1023;
  uint64_t code;
  if (magnitude > uint64_t{0x7FF} << 52) {
    code = kInfinity | uint64_t{1} << (kMantissa - 1);  // not a number
  } else if (exponent > kBias) {
    code = kInfinity;
  } else if (exponent < 1 - kBias) {
    const uint64_t mantissa = (magnitude & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52;
    code = shift_rounded(mantissa, 52 - kMantissa + (1 - kBias - exponent));
  } else {
    code = shift_rounded(magnitude - (uint64_t{1023 - kBias} << 52), 52 - kMantissa);
  }
  return static_cast<uint16_t>(sign | code);
}

template <typename Stored, typename Value>
struct Plain {
  static constexpr size_t kBytes = sizeof(Stored);
  static Value load(const char* place) {
    Stored stored;
    std::memcpy(&stored, place, sizeof stored);
    return static_cast<Value>(stored);
  }
  static void store(char* place, Value value) {
    const auto stored = static_cast<Stored>(value);
    std::memcpy(place, &stored, sizeof stored);
  }
};

template <int kMantissa>
struct Short {
  static constexpr size_t kBytes = 2;
  static double load(const char* place) {
    return decode<kMantissa>(Plain<uint16_t, uint16_t>::load(place));
  }
  static void store(char* place, double value) {
    Plain<uint16_t, uint16_t>::store(place, encode<kMantissa>(value));
  }
};

// Every type's numbers are doubles, so one rounding is the only one.
template <typename From, typename To>
void convert_by_double(const char* from, char* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const auto place = static_cast<size_t>(i);
    To::store(to + place * To::kBytes, From::load(from + place * From::kBytes));
  }
}

template <typename From>
void convert_from(const char* from, char* to, StoredType to_type, int64_t count) {
  if (to_type == StoredType::f64)
    return convert_by_double<From, Plain<double, double>>(from, to, count);
  if (to_type == StoredType::f32)
    return convert_by_double<From, Plain<float, double>>(from, to, count);
  if (to_type == StoredType::f16) return convert_by_double<From, Short<10>>(from, to, count);
  convert_by_double<From, Short<7>>(from, to, count);
}

// The two pairs that whole models go through, in a form that compilers vectorise.
void widen_bf16(const char* from, char* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = uint32_t{Plain<uint16_t, uint16_t>::load(from + 2 * i)} << 16;
    Plain<uint32_t, uint32_t>::store(to + 4 * i, bits);
  }
}

void narrow_to_bf16(const char* from, char* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = Plain<uint32_t, uint32_t>::load(from + 4 * i);
    const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    const uint32_t not_a_number = (bits >> 16 & 0x8000) | 0x7FC0;
    Plain<uint16_t, uint16_t>::store(
        to + 2 * i,
        static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? not_a_number : rounded));
  }
}

}  // namespace

void convert_elements(const void* from, StoredType from_type, void* to, StoredType to_type,
                      int64_t count) {
  VEIL_CHECK(is_convertible(from_type) && is_convertible(to_type), "{} to {}", name_of(from_type),
             name_of(to_type));
  const auto* const source = static_cast<const char*>(from);
  auto* const target = static_cast<char*>(to);
  if (count == 0) return;
  if (from_type == to_type) {
    std::memcpy(target, source, static_cast<size_t>(count * stored_bits(from_type) / 8));
  } else if (from_type == StoredType::bf16 && to_type == StoredType::f32) {
    widen_bf16(source, target, count);
  } else if (from_type == StoredType::f32 && to_type == StoredType::bf16) {
    narrow_to_bf16(source, target, count);
  } else if (from_type == StoredType::f64) {
    convert_from<Plain<double, double>>(source, target, to_type, count);
  } else if (from_type == StoredType::f32) {
    convert_from<Plain<float, double>>(source, target, to_type, count);
  } else if (from_type == StoredType::f16) {
    convert_from<Short<10>>(source, target, to_type, count);
  } else {
    convert_from<Short<7>>(source, target, to_type, count);
  }
}

}  // namespace veil
