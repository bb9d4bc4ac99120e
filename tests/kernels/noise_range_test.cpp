// Noise and updates on a CPU are made for many elements at once: equal in every bit to one element
// after another.
#include "kernels/noise_range.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/noisy_update.h"

namespace veil {
namespace {

constexpr uint64_t kStep = 0x0001'00000005;
constexpr uint32_t kParameter = 7;

NoiseKeys keys_of(NoiseGenerator generator) {
  ChaChaKey key;
  for (uint32_t w = 0; w < 8; ++w) key.word[w] = 0x9E3779B9u * (w + 1);
  return noise_keys(generator, key);
}

// Group by group.
template <typename Real>
std::vector<Real> expected_normals(const NoiseKeys& keys, int64_t first_element, int64_t count) {
  std::vector<Real> z;
  for (int64_t element = first_element; element < first_element + count;) {
    const NoiseGroup<Real> group =
        noise_group<Real>(keys, kStep, kParameter, static_cast<uint64_t>(element / kNoiseGroup));
    for (int64_t k = element % kNoiseGroup; k < kNoiseGroup && element < first_element + count;
         ++k, ++element)
      z.push_back(group.value[k]);
  }
  return z;
}

template <typename Real>
bool same_bits(const std::vector<Real>& a, const std::vector<Real>& b) {
  if (a.size() != b.size() || a.empty()) return a.empty() && b.empty();
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(Real)) == 0;
}

template <typename Real>
std::vector<Real> normals(const NoiseKeys& keys, int64_t first_element, int64_t count) {
  std::vector<Real> z(static_cast<size_t>(count), Real{-1});
  noise_range(keys, kStep, kParameter, first_element, count, z.data());
  return z;
}

const NoiseGenerator kEach[] = {NoiseGenerator::secure, NoiseGenerator::philox,
                                NoiseGenerator::hardened};

// From here on a group's number carries into its upper word within the range.
constexpr int64_t kFirst = ((int64_t{1} << 32) - 20'000) * kNoiseGroup + 5;

TEST(NoiseRange, HasTheBitsOfEveryGroupAlone) {
  constexpr int64_t kGroups = 40'000;
  for (const NoiseGenerator generator : kEach) {
    const NoiseKeys keys = keys_of(generator);
    constexpr int64_t kCount = kGroups * kNoiseGroup - 9;
    const std::vector<float> made = normals<float>(keys, kFirst, kCount);
    EXPECT_TRUE(same_bits(made, expected_normals<float>(keys, kFirst, kCount)))
        << name_of(generator);
    int64_t further = 0;
    for (int64_t g = 0; g < kGroups; ++g)
      further += noise_needs_further_words(noise_words(
          generator, keys.key, kStep, kParameter, static_cast<uint64_t>(kFirst / kNoiseGroup + g)));
    EXPECT_GT(further, 2) << name_of(generator);
  }
}

TEST(NoiseRange, MayBeginAndEndAnywhere) {
  for (const NoiseGenerator generator : kEach) {
    const NoiseKeys keys = keys_of(generator);
    for (const int64_t from : {0, 1, 15, 16, 17, 127, 128, 130}) {
      for (const int64_t count :
           {0, 1, 2, 15, 16, 17, 33, 48, 100, 127, 128, 129, 144, 300, 1025}) {
        EXPECT_TRUE(same_bits(normals<float>(keys, kFirst + from, count),
                              expected_normals<float>(keys, kFirst + from, count)))
            << name_of(generator) << " " << from << " " << count;
        EXPECT_TRUE(same_bits(normals<double>(keys, kFirst + from, count),
                              expected_normals<double>(keys, kFirst + from, count)))
            << name_of(generator) << " " << from << " " << count;
      }
    }
  }
}

float stored(float value, DType dtype, const UpdateRule& rule, const UpdateKnobs& knobs,
             int64_t index, Rounded what) {
  if (dtype == at::kFloat) return value;
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits = uint32_t{round_to_bf16_stochastically(bits, rounding_bits(rule, knobs, index, what))}
         << 16;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

struct UpdateCase {
  NoiseGenerator generator;
  OptimizerKind kind;
  DType param, moments, grad;
};

// One element after another, in place of noisy_update. fp32 arithmetic.
void update_each(const NoisyUpdate& of, const UpdateKnobs& knobs, const UpdateRule& rule,
                 const NoiseKnobs& noise, const NoiseKeys& keys) {
  const int64_t numel = of.param.numel(), samples = of.coefficients.numel();
  const auto flat = [](const Tensor& t) {
    return t.defined() ? t.to(at::kFloat).contiguous() : Tensor();
  };
  const Tensor param = flat(of.param).clone(), grad = flat(of.grad);
  const Tensor m = of.m.defined() ? flat(of.m).clone() : at::empty({numel}),
               v = of.v.defined() ? flat(of.v).clone() : at::empty({numel});
  const double* c = of.coefficients.data_ptr<double>();
  const auto factors = update_factors<float>(rule, knobs);
  for (int64_t i = 0; i < numel; ++i) {
    float sum = 0;
    for (int64_t s = 0; s < samples; ++s) {
      if (c[s] != 0) sum += static_cast<float>(c[s]) * grad.data_ptr<float>()[s * numel + i];
    }
    const int64_t element = of.first_element + i;
    sum += static_cast<float>(noise.deviation) *
           noise_group<float>(keys, static_cast<uint64_t>(noise.step), of.parameter,
                              static_cast<uint64_t>(element / kNoiseGroup))
               .value[element % kNoiseGroup];
    if (keys.generator == NoiseGenerator::hardened)
      sum = noise_snapped(sum, noise_anchor<float>(noise.deviation));
    float &p = param.data_ptr<float>()[i], &first = m.data_ptr<float>()[i],
          &second = v.data_ptr<float>()[i];
    const float value = updated_param<float>(factors, p, sum, first, second);
    const int64_t index = of.first_index + i;
    p = stored(value, of.param.scalar_type(), rule, knobs, index, Rounded::param);
    if (of.m.defined())
      first = stored(first, of.m.scalar_type(), rule, knobs, index, Rounded::first_moment);
    if (of.v.defined())
      second = stored(second, of.v.scalar_type(), rule, knobs, index, Rounded::second_moment);
  }
  of.param.copy_(param);
  if (of.m.defined()) of.m.copy_(m);
  if (of.v.defined()) of.v.copy_(v);
}

NoisyUpdate update_of(const UpdateCase& c) {
  constexpr int64_t kNumel = 20'011, kSamples = 4;
  NoisyUpdate of;
  of.param = at::randn({kNumel}).to(c.param);
  if (c.kind != OptimizerKind::sgd) of.m = at::randn({kNumel}).to(c.moments);
  if (c.kind == OptimizerKind::adamw) of.v = at::randn({kNumel}).abs().to(c.moments);
  of.grad = at::randn({kSamples, kNumel + 3}).to(c.grad).narrow(1, 0, kNumel);
  of.grad[1].fill_(std::numeric_limits<double>::quiet_NaN());
  of.coefficients = at::tensor({0.3, 0.0, 1.0, 0.123456789}, at::kDouble);
  of.first_index = 13;
  of.parameter = kParameter;
  of.first_element = 21;
  return of;
}

TEST(NoiseRange, ANoisyUpdateHasTheBitsOfEveryElementAlone) {
  const UpdateKnobs knobs{0.1, 0.25, 0.1, 0.05, 3};
  const NoiseKnobs noise{3, 0.7};
  const Tensor knobs_at = at::tensor({0.1, 0.25, 0.1, 0.05, 3.0, 0.0, 0.0, 0.0}, at::kDouble),
               noise_at = at::tensor({3.0, 0.7}, at::kDouble);
  std::vector<UpdateCase> cases;
  for (const NoiseGenerator generator : kEach) {
    for (const OptimizerKind kind :
         {OptimizerKind::sgd, OptimizerKind::sgd_momentum, OptimizerKind::adamw}) {
      for (const DType param : {at::kFloat, at::kBFloat16}) {
        for (const DType moments : {at::kFloat, at::kBFloat16})
          cases.push_back({generator, kind, param, moments, param});
      }
    }
  }
  for (const UpdateCase& c : cases) {
    const UpdateRule rule{c.kind, 0.9, 0.9, 0.95, 1e-8, 0.1, 11};
    const NoiseKeys keys = keys_of(c.generator);
    const NoisyUpdate made = update_of(c);
    NoisyUpdate expected = made;
    for (Tensor* tensor : {&expected.param, &expected.m, &expected.v}) {
      if (tensor->defined()) *tensor = tensor->clone();
    }
    noisy_update(made, knobs_at, rule, noise_at, {c.generator, keys.key});
    update_each(expected, knobs, rule, noise, keys);
    SCOPED_TRACE(name_of(c.generator));
    EXPECT_TRUE(at::equal(made.param, expected.param)) << static_cast<int>(c.kind);
    if (made.m.defined()) {
      EXPECT_TRUE(at::equal(made.m, expected.m)) << static_cast<int>(c.kind);
    }
    if (made.v.defined()) {
      EXPECT_TRUE(at::equal(made.v, expected.v)) << static_cast<int>(c.kind);
    }
  }
}

}  // namespace
}  // namespace veil
