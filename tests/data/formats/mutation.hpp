#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>

namespace libtrain::data {

/// Damages bytes in the ways files get damaged or are made to harm: the same for the same seed.
class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  /// `bytes` after one to four kinds of damage, at most twice as long and 64 bytes.
  std::string mutate(std::string bytes) {
    const std::size_t limit = 2 * bytes.size() + 64;
    for (std::size_t rounds = 1 + below(4); rounds > 0; --rounds) {
      damage(bytes);
      if (bytes.size() > limit) bytes.resize(limit);
    }
    return bytes;
  }

 private:
  // Below `count`, which may be 0.
  std::size_t below(std::size_t count) { return count == 0 ? 0 : static_cast<std::size_t>(random_() % count); }

  void damage(std::string& bytes) {
    switch (below(7)) {
      case 0:
        return flip_bits(bytes);
      case 1:
        return bytes.resize(below(bytes.size() + 1));
      case 2: {
        const std::size_t begin = below(bytes.size());
        const std::string span = bytes.substr(begin, below(bytes.size() - begin + 1));
        bytes.insert(below(bytes.size() + 1), span);
        return;
      }
      case 3: {
        const std::size_t begin = below(bytes.size());
        bytes.erase(begin, 1 + below(bytes.size() - begin));
        return;
      }
      case 4:
        return write_number(bytes);
      case 5:
        return write_digits(bytes);
      default: {
        const std::size_t begin = below(bytes.size());
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(begin), below(bytes.size() - begin + 1), '\0');
        return;
      }
    }
  }

  void flip_bits(std::string& bytes) {
    if (bytes.empty()) return;
    for (std::size_t flips = 1 + below(8); flips > 0; --flips) {
      char& byte = bytes[below(bytes.size())];
      byte = static_cast<char>(byte ^ (1 << below(8)));
    }
  }

  // Lengths that are huge, negative as signed numbers, or about to overflow, in either order of bytes.
  void write_number(std::string& bytes) {
    static constexpr std::uint64_t kNumbers[] = {~std::uint64_t{0},
                                                 ~std::uint64_t{0} - 15,
                                                 std::uint64_t{1} << 63,
                                                 (std::uint64_t{1} << 63) - 1,
                                                 std::uint64_t{1} << 40,
                                                 std::uint64_t{1} << 32,
                                                 0xffffffffU,
                                                 0x7fffffffU,
                                                 0};
    std::uint64_t number = below(2) == 0 ? kNumbers[below(std::size(kNumbers))] : random_();
    const std::size_t width = std::min(1 + below(8), bytes.size());
    const std::size_t begin = below(bytes.size() - width + 1);
    const bool is_big_endian = below(2) == 0;
    for (std::size_t i = 0; i < width; ++i, number >>= 8) {
      bytes[begin + (is_big_endian ? width - 1 - i : i)] = static_cast<char>(number & 0xff);
    }
  }

  // What tar takes for numbers.
  void write_digits(std::string& bytes) {
    const std::size_t width = std::min(1 + below(12), bytes.size());
    const std::size_t begin = below(bytes.size() - width + 1);
    const char digit = static_cast<char>('0' + static_cast<char>(below(10)));
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(begin), width, digit);
  }

  std::mt19937_64 random_;
};

}  // namespace libtrain::data
