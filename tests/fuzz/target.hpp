#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// A fuzz target: what is called with any bytes, and small inputs of its own format, from which damaged ones are made.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
std::vector<std::string> fuzz_seeds();

/// How many inputs were read and not refused. A target counts them, so that its seeds are seen to be among them.
inline std::uint64_t read_inputs = 0;

/// Ends the process, as a crash does, where a promise is not kept.
inline void require(bool promise) {
  if (!promise) __builtin_trap();
}
