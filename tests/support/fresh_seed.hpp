#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

#include <gtest/gtest.h>

namespace libtrain::test {

inline constexpr const char* kSeedVariable = "LIBTRAIN_TEST_SEED";

/// The seed of a test that looks for what its author has not thought of: that of the environment variable
/// LIBTRAIN_TEST_SEED, with which a failure is repeated, and without it another one each time.
inline std::uint64_t fresh_seed() {
  const char* const given = std::getenv(kSeedVariable);
  return given != nullptr ? std::stoull(given) : std::random_device{}();
}

/// The same, named where an expectation fails as long as this object lives.
class FreshSeed {
 public:
  FreshSeed() : trace_(__FILE__, __LINE__, std::string{kSeedVariable} + "=" + std::to_string(value)) {}

  const std::uint64_t value = fresh_seed();

 private:
  const ::testing::ScopedTrace trace_;
};

}  // namespace libtrain::test
