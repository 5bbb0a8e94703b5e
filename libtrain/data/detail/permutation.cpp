#include <libtrain/data/detail/permutation.hpp>

#include <algorithm>
#include <bit>

#include <libtrain/base/error.hpp>
#include <libtrain/base/splitmix.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

namespace {

int half_width(std::uint64_t size) {
  const int bits = size > 1 ? static_cast<int>(std::bit_width(size - 1)) : 0;
  return std::max(1, (bits + 1) / 2);
}

}  // namespace

Permutation::Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch)
    : size_(size), half_bits_(half_width(size)), keys_{} {
  std::uint64_t state = libtrain::detail::combine_keys(seed, epoch);
  for (auto& key : keys_) key = libtrain::detail::mix_bits(state += libtrain::detail::kGoldenRatioBits);
}

std::uint64_t Permutation::operator()(std::uint64_t i) const {
  // From a position outside the range the loop might never end.
  if (i >= size_) throw UsageError(text("Position ", i, " is outside a permutation of ", size_, " elements."));
  std::uint64_t x = encrypt(i);
  while (x >= size_) x = encrypt(x);
  return x;
}

std::uint64_t Permutation::encrypt(std::uint64_t x) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = x >> half_bits_;
  std::uint64_t right = x & mask;
  for (const std::uint64_t key : keys_) {
    // The upper bits are better mixed.
    const std::uint64_t next = left ^ (libtrain::detail::mix_bits(right ^ key) >> (64 - half_bits_));
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

}  // namespace libtrain::data::detail
