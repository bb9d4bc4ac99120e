#include "kernels/noise_range.h"

#include <algorithm>
#include <cstring>

#include "kernels/word_lanes.h"

namespace veil {
namespace {

constexpr int kLanes = 8;  // groups made at once: enough for the widest vectors
constexpr int kPairs = kNoiseGroup / 2, kLanePairs = kPairs * kLanes;

// Of every lane's block: word 2 p gives pair p its radius, word 2 p + 1 its angle. Those of lane l
// are at p kLanes + l.
struct LaneWords {
  uint32_t radius[kLanePairs], turn[kLanePairs];
};

void chacha_words(const ChaChaKey& key, uint64_t step, uint32_t parameter, uint64_t first_group,
                  LaneWords& words) {
  ChaChaBlock input[kLanes];
  for (int l = 0; l < kLanes; ++l)
    input[l] = noise_chacha_input(key, step, parameter, first_group + static_cast<uint64_t>(l),
                                  /*further=*/false);
  WordLanes<kLanes> x[kNoiseGroup];
  chacha20(input, x);
  for (int pair = 0; pair < kPairs; ++pair) {
    for (int l = 0; l < kLanes; ++l) {
      words.radius[pair * kLanes + l] = x[2 * pair].lane[l];
      words.turn[pair * kLanes + l] = x[2 * pair + 1].lane[l];
    }
  }
}

void philox_words(const PhiloxSecret& secret, uint64_t step, uint32_t parameter,
                  uint64_t first_group, LaneWords& words) {
  constexpr int kCalls = 4;
  WordLanes<kCalls * kLanes> c0, c1, c2, c3;
  uint64_t key = 0;
  for (int call = 0; call < kCalls; ++call) {
    for (int l = 0; l < kLanes; ++l) {
      const PhiloxInput of =
          noise_philox_input(secret, step, parameter, first_group + static_cast<uint64_t>(l),
                             /*further=*/false, static_cast<uint32_t>(call));
      const int at = call * kLanes + l;
      key = of.key;
      c0.lane[at] = static_cast<uint32_t>(of.low);
      c1.lane[at] = static_cast<uint32_t>(of.low >> 32);
      c2.lane[at] = static_cast<uint32_t>(of.high);
      c3.lane[at] = static_cast<uint32_t>(of.high >> 32);
    }
  }
  philox_rounds<10>(key, c0, c1, c2, c3);
  for (int call = 0; call < kCalls; ++call) {
    for (int l = 0; l < kLanes; ++l) {
      const int from = call * kLanes + l, to = 2 * call * kLanes + l;
      words.radius[to] = c0.lane[from];
      words.turn[to] = c1.lane[from];
      words.radius[to + kLanes] = c2.lane[from];
      words.turn[to + kLanes] = c3.lane[from];
    }
  }
}

// Both values of pair p in lane l are at 2 (p kLanes + l).
struct LaneNormals {
  float value[2 * kLanePairs];
};

void lane_normals(const LaneWords& words, LaneNormals& normals) {
  for (int i = 0; i < kLanePairs; ++i) {
    const float radius = noise_radius<float>(words.radius[i]);
    noise_pair(radius, words.turn[i], normals.value[2 * i], normals.value[2 * i + 1]);
  }
}

bool needs_further_words(const LaneWords& words) {
  uint32_t least = kNoiseEnd;
  for (int i = 0; i < kLanePairs; ++i) least = std::min(least, noise_from_end(words.radius[i]));
  return least < kNoiseEnd;
}

// The values of kLanes groups, as if none of them needed further words. Returns whether one does.
inline bool lane_groups(const NoiseKeys& keys, uint64_t step, uint32_t parameter,
                        uint64_t first_group, float* out) {
  LaneWords words;
  if (keys.generator == NoiseGenerator::philox) {
    philox_words(noise_philox_secret(keys.key), step, parameter, first_group, words);
  } else {
    chacha_words(keys.key, step, parameter, first_group, words);
  }
  LaneNormals normals;
  lane_normals(words, normals);
  const bool further = needs_further_words(words);
  if (keys.generator == NoiseGenerator::hardened) {
    LaneNormals second;
    philox_words(keys.second, step, parameter, first_group, words);
    lane_normals(words, second);
    for (int i = 0; i < 2 * kLanePairs; ++i)
      normals.value[i] = noise_weighted(normals.value[i], second.value[i]);
  }
  for (int l = 0; l < kLanes; ++l) {
    for (int pair = 0; pair < kPairs; ++pair)
      std::memcpy(out + l * kNoiseGroup + 2 * pair, normals.value + 2 * (pair * kLanes + l),
                  2 * sizeof(float));
  }
  return further;
}

// Compiled for the processors that the program is for, and on x86_64 for AVX2 as well, whose
// vectors are twice as long. Without fused multiply-adds both give the same bits.
[[gnu::flatten]] bool lane_groups_here(const NoiseKeys& keys, uint64_t step, uint32_t parameter,
                                       uint64_t first_group, float* out) {
  return lane_groups(keys, step, parameter, first_group, out);
}
#if defined(__x86_64__)
[[gnu::flatten, gnu::target("avx2")]] bool lane_groups_avx2(const NoiseKeys& keys, uint64_t step,
                                                            uint32_t parameter,
                                                            uint64_t first_group, float* out) {
  return lane_groups(keys, step, parameter, first_group, out);
}
#endif

// One group or kLanes of them, whichever is quicker for the groups that are wanted. Returns how
// many there are in `out`.
template <typename Real>
int64_t make_groups(const NoiseKeys& keys, uint64_t step, uint32_t parameter, uint64_t first_group,
                    int64_t wanted, Real* out) {
  int64_t made = 1;
  if constexpr (sizeof(Real) == 4) {
    // kLanes groups take the time of three alone.
    if (wanted >= 3) {
      made = kLanes;
#if defined(__x86_64__)
      static const bool avx2 = __builtin_cpu_supports("avx2");
      const bool further =
          (avx2 ? lane_groups_avx2 : lane_groups_here)(keys, step, parameter, first_group, out);
#else
      const bool further = lane_groups_here(keys, step, parameter, first_group, out);
#endif
      if (!further) return made;
    }
  }
  for (int64_t g = 0; g < made; ++g) {
    const NoiseGroup<Real> group =
        noise_group<Real>(keys, step, parameter, first_group + static_cast<uint64_t>(g));
    std::copy_n(group.value, kNoiseGroup, out + g * kNoiseGroup);
  }
  return made;
}

// use(i, n, z): z[k] belongs to element first_element + i + k, k < n; the parts make up the range.
template <typename Real, typename Use>
void for_each_part(const NoiseKeys& keys, uint64_t step, uint32_t parameter, int64_t first_element,
                   int64_t count, Use use) {
  Real z[kLanes * kNoiseGroup] = {};
  for (int64_t i = 0; i < count;) {
    const int64_t element = first_element + i, from = element % kNoiseGroup;
    const int64_t wanted = (from + count - i + kNoiseGroup - 1) / kNoiseGroup;
    const int64_t made =
        make_groups(keys, step, parameter, static_cast<uint64_t>(element / kNoiseGroup), wanted, z);
    const int64_t n = std::min(count - i, made * kNoiseGroup - from);
    use(i, n, z + from);
    i += n;
  }
}

}  // namespace

template <typename Real>
void noise_range(const NoiseKeys& keys, uint64_t step, uint32_t parameter, int64_t first_element,
                 int64_t count, Real* out) {
  for_each_part<Real>(keys, step, parameter, first_element, count,
                      [&](int64_t i, int64_t n, const Real* z) { std::copy_n(z, n, out + i); });
}

template <typename Real>
void add_noise_range(const NoiseKeys& keys, const NoiseKnobs& knobs, uint32_t parameter,
                     int64_t first_element, int64_t count, Real* out) {
  if (knobs.deviation == 0) return;
  const auto deviation = static_cast<Real>(knobs.deviation);
  const bool hardened = keys.generator == NoiseGenerator::hardened;
  const Real anchor = noise_anchor<Real>(knobs.deviation);
  for_each_part<Real>(keys, static_cast<uint64_t>(knobs.step), parameter, first_element, count,
                      [&](int64_t i, int64_t n, const Real* z) {
                        for (int64_t k = 0; k < n; ++k) {
                          const Real sum = out[i + k] + deviation * z[k];
                          out[i + k] = hardened ? noise_snapped(sum, anchor) : sum;
                        }
                      });
}

template void noise_range(const NoiseKeys&, uint64_t, uint32_t, int64_t, int64_t, float*);
template void noise_range(const NoiseKeys&, uint64_t, uint32_t, int64_t, int64_t, double*);
template void add_noise_range(const NoiseKeys&, const NoiseKnobs&, uint32_t, int64_t, int64_t,
                              float*);
template void add_noise_range(const NoiseKeys&, const NoiseKnobs&, uint32_t, int64_t, int64_t,
                              double*);

}  // namespace veil
