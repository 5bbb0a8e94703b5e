#pragma once

#include <cstdint>

#include <libtrain/base/error.hpp>
#include <libtrain/base/splitmix.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

/// Random numbers of one sample in one epoch: augmentation that draws from them does not depend on threads, ranks or
/// the order of loading. SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) started at a hash of seed, epoch and sample
/// index. The same on every platform. Used by one thread at a time.
class SampleRandom {
 public:
  SampleRandom(std::uint64_t seed, std::uint64_t epoch, std::uint64_t index)
      : state_(libtrain::detail::combine_keys(libtrain::detail::combine_keys(seed, epoch), index)) {}

  /// 64 random bits.
  std::uint64_t next() { return libtrain::detail::mix_bits(state_ += libtrain::detail::kGoldenRatioBits); }

  /// Uniform in [0, 1), a multiple of 2^-53.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

  /// Uniform over the integers low, ..., high, both included. Throws UsageError if low > high.
  int integer(int low, int high) {
    if (low > high) throw UsageError(text("There is no integer from ", low, " to ", high, "."));
    const auto count = static_cast<std::uint64_t>(std::int64_t{high} - low) + 1;
    // 2^64 mod count: numbers below it are rejected, so that every remainder has the same probability.
    const std::uint64_t rejected = (0 - count) % count;
    std::uint64_t bits = next();
    while (bits < rejected) bits = next();
    return static_cast<int>(low + static_cast<std::int64_t>(bits % count));
  }

 private:
  std::uint64_t state_;
};

}  // namespace libtrain::data
