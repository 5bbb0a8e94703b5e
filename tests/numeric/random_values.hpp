#pragma once

#include <cstddef>
#include <random>
#include <vector>

namespace libtrain::test {

/// Evenly distributed from -1 to 1.
template <typename T>
std::vector<T> random_values(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<T> values(count);
  for (auto& value : values) value = static_cast<T>(engine()) / static_cast<T>(1u << 31) - 1;
  return values;
}

}  // namespace libtrain::test
