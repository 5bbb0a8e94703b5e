#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace libtrain::bench {

/// The number of bytes that "4096", "4KiB", "16MiB" or "1GiB" stands for: at least 1, below 2^40. Throws UsageError for
/// anything else.
std::int64_t parse_bytes(std::string_view text);

/// Sizes separated by commas, in the order given.
std::vector<std::int64_t> parse_byte_sizes(std::string_view list);

/// `begin`, `begin` * `factor`, ... up to and including `end`. Throws UsageError for an empty range.
std::vector<std::int64_t> byte_sweep(std::int64_t begin, std::int64_t end, std::int64_t factor);

/// "4 KiB", "16 MiB"; "1000 B" where no larger unit fits exactly.
std::string format_bytes(std::int64_t bytes);

}  // namespace libtrain::bench
