#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>

namespace libtrain::test {

/// What a test writes into the file `name` of the checkpoint of `step`: other bytes for every file and step.
inline std::string checkpoint_bytes(std::int64_t step, const std::string& name, std::size_t count) {
  std::mt19937_64 random(std::hash<std::string>{}(name) ^ static_cast<std::uint64_t>(step));
  std::string bytes(count, '\0');
  for (std::size_t begin = 0; begin < count; begin += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + begin, &word, std::min(sizeof word, count - begin));
  }
  return bytes;
}

}  // namespace libtrain::test
