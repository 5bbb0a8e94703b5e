#include <bench/byte_sizes.hpp>

#include <algorithm>
#include <array>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::bench {

namespace {

struct Unit {
  std::string_view name;
  std::int64_t bytes;
};

constexpr std::array kUnits{Unit{"GiB", 1 << 30}, Unit{"MiB", 1 << 20}, Unit{"KiB", 1 << 10}};
constexpr std::int64_t kLimit = std::int64_t{1} << 40;

}  // namespace

std::int64_t parse_bytes(std::string_view text) {
  auto digits = text;
  std::int64_t unit_bytes = 1;
  for (const auto& unit : kUnits) {
    if (!text.ends_with(unit.name)) continue;
    digits.remove_suffix(unit.name.size());
    unit_bytes = unit.bytes;
  }
  const auto number = parse_integer(digits, 1, (kLimit - 1) / unit_bytes);
  if (!number) {
    throw UsageError(libtrain::text("'", text, "' is not a size below 1024 GiB: write 4096, 4KiB, 16MiB or 1GiB."));
  }
  return *number * unit_bytes;
}

std::vector<std::int64_t> parse_byte_sizes(std::string_view list) {
  std::vector<std::int64_t> sizes;
  for (std::size_t begin = 0; begin <= list.size();) {
    const auto end = std::min(list.find(',', begin), list.size());
    sizes.push_back(parse_bytes(list.substr(begin, end - begin)));
    begin = end + 1;
  }
  return sizes;
}

std::vector<std::int64_t> byte_sweep(std::int64_t begin, std::int64_t end, std::int64_t factor) {
  if (factor < 2 || begin > end) {
    throw UsageError(text("Sizes from ", format_bytes(begin), " to ", format_bytes(end), " by a factor of ", factor,
                          " are none: the end must not be below the begin, and the factor must be at least 2."));
  }
  std::vector<std::int64_t> sizes;
  for (auto bytes = begin; bytes <= end; bytes *= factor) {
    sizes.push_back(bytes);
    if (bytes > end / factor) break;
  }
  return sizes;
}

std::string format_bytes(std::int64_t bytes) {
  for (const auto& unit : kUnits) {
    if (bytes > 0 && bytes % unit.bytes == 0) return text(bytes / unit.bytes, " ", unit.name);
  }
  return text(bytes, " B");
}

}  // namespace libtrain::bench
