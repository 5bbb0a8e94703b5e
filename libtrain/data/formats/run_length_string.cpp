#include <cstddef>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/run_length.hpp>

namespace libtrain::data {

namespace {

constexpr char kFirst = '0';
constexpr int kGroupBits = 5;
constexpr std::uint64_t kGroupMask = 0x1f;
constexpr std::uint64_t kSign = 0x10;
constexpr std::uint64_t kMore = 0x20;
// Differences of 32-bit counts have 33 bits.
constexpr int kMostGroups = 7;
// Counts before the one with this number are written as they are.
constexpr std::size_t kFirstDifference = 3;

// The signed number whose groups begin at `position`, which moves behind them; nothing where they do not end in time
// or where there is another character.
std::optional<std::int64_t> read_groups(std::string_view encoded, std::size_t& position) {
  std::uint64_t bits = 0;
  for (int number = 0; number < kMostGroups && position < encoded.size(); ++number) {
    const int character = static_cast<unsigned char>(encoded[position]) - kFirst;
    if (character < 0 || character > 63) return std::nullopt;
    const auto group = static_cast<std::uint64_t>(character);
    const int shift = kGroupBits * number;
    bits |= (group & kGroupMask) << shift;
    ++position;
    if ((group & kMore) != 0) continue;
    if ((group & kSign) != 0) bits |= ~std::uint64_t{0} << (shift + kGroupBits);
    return static_cast<std::int64_t>(bits);
  }
  return std::nullopt;
}

}  // namespace

namespace detail {

std::optional<std::string> append_coco_counts(std::string_view encoded, std::uint64_t pixels,
                                              std::vector<std::uint32_t>& counts) {
  const std::size_t first = counts.size();
  std::uint64_t covered = 0;
  for (std::size_t position = 0; position < encoded.size();) {
    const std::size_t begin = position;
    const auto number = read_groups(encoded, position);
    if (!number) return text("the count at character ", begin, " does not end, or holds one that cannot be there");
    const std::size_t index = counts.size() - first;
    const std::int64_t count =
        index < kFirstDifference ? *number : *number + static_cast<std::int64_t>(counts[counts.size() - 2]);
    if (count < 0 || static_cast<std::uint64_t>(count) > pixels - covered) {
      return text("the count at character ", begin, " is ", count, ", of ", pixels - covered, " pixels left");
    }
    covered += static_cast<std::uint64_t>(count);
    counts.push_back(static_cast<std::uint32_t>(count));
  }
  if (covered != pixels) return text("the counts add up to ", covered, " of ", pixels, " pixels");
  return std::nullopt;
}

}  // namespace detail

std::string to_coco_string(RunLengthView runs) {
  std::string encoded;
  for (std::size_t index = 0; index < runs.counts.size(); ++index) {
    std::int64_t number = runs.counts[index];
    if (index >= kFirstDifference) number -= runs.counts[index - 2];
    bool more = true;
    while (more) {
      auto group = static_cast<std::uint64_t>(number) & kGroupMask;
      number >>= kGroupBits;
      more = number != ((group & kSign) != 0 ? -1 : 0);
      if (more) group |= kMore;
      encoded += static_cast<char>(kFirst + static_cast<char>(group));
    }
  }
  return encoded;
}

RunLength from_coco_string(std::string_view encoded, std::uint32_t height, std::uint32_t width) {
  const std::uint64_t pixels = detail::mask_pixels(height, width);
  RunLength result{.height = height, .width = width};
  if (const auto fault = detail::append_coco_counts(encoded, pixels, result.counts)) {
    throw EnvironmentError(text("A run-length encoded mask of ", height, " x ", width, " is damaged: ", *fault, "."));
  }
  return result;
}

}  // namespace libtrain::data
