// Element types as weight files name them, and the numbers they stand for. No LibTorch.
#pragma once

#include <cstdint>

#include "base/names.h"

namespace veil {

enum class StoredType {
  f64,
  f32,
  f16,
  bf16,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean,
  c64,
  f8_e4m3,
  f8_e5m2,
  f8_e8m0,
  f6_e2m3,
  f6_e3m2,
  f4
};
const NameTable<StoredType>& names(StoredType);  // the format's own spelling: "F32", "BF16", "BOOL"

int64_t stored_bits(StoredType type);  // of one element
bool is_convertible(StoredType type);  // F64, F32, F16, BF16

// Numbers of one convertible type as another, rounded once to the nearest, ties to even; what is
// too large becomes infinite. Neither pointer needs to be aligned; the ranges do not overlap.
void convert_elements(const void* from, StoredType from_type, void* to, StoredType to_type,
                      int64_t count);

}  // namespace veil
