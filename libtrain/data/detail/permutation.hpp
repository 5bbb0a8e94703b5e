#pragma once

#include <array>
#include <cstdint>

namespace libtrain::data::detail {

/// A pseudo-random bijection on [0, size), chosen by a seed and an epoch, in constant memory.
///
/// A balanced Feistel network (Luby and Rackoff, 1988) permutes the smallest even number of bits that covers `size`; a
/// result outside the range is permuted again until it is inside (cycle walking: Black and Rogaway, Ciphers with
/// Arbitrary Finite Domains, 2002), at most 4 passes through the network on average. The round function is the
/// finaliser of SplitMix64. The same on every platform and with every standard library. Immutable: any thread may call
/// it.
class Permutation {
 public:
  Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch);

  /// The element at position `i` of the permuted order. Throws UsageError unless `i` is below size().
  std::uint64_t operator()(std::uint64_t i) const;

  std::uint64_t size() const { return size_; }

 private:
  std::uint64_t encrypt(std::uint64_t x) const;

  // With 6 rounds some neighbours are visibly more likely in ranges of fewer than 17 elements, with 8 rounds not.
  static constexpr int kRounds = 12;
  std::uint64_t size_;
  int half_bits_;
  std::array<std::uint64_t, kRounds> keys_;
};

}  // namespace libtrain::data::detail
