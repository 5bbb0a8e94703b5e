#pragma once

#include <cstdint>

namespace libtrain::detail {

/// The 64-bit finaliser "Mix13" of David Stafford (Better Bit Mixing, 2011), as used by SplitMix64: Steele, Lea and
/// Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014. A bijection; every input bit reaches every
/// output bit.
constexpr std::uint64_t mix_bits(std::uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  return bits ^ (bits >> 31);
}

/// SplitMix64's increment: 2^64 divided by the golden ratio, made odd.
inline constexpr std::uint64_t kGoldenRatioBits = 0x9e3779b97f4a7c15u;

/// Combines two numbers into one key. The increments avoid mix_bits(0), which is 0.
constexpr std::uint64_t combine_keys(std::uint64_t a, std::uint64_t b) {
  return mix_bits(mix_bits(a + kGoldenRatioBits) + b + kGoldenRatioBits);
}

}  // namespace libtrain::detail
