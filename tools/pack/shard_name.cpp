#include <tools/pack/shard_name.hpp>

#include <algorithm>
#include <cstddef>
#include <iomanip>

#include <libtrain/base/text.hpp>

namespace libtrain::pack {

namespace {

constexpr int kDigits = 5;
constexpr std::string_view kNumbers = "00000-of-00000";

// The parts of a name around the numbers.
struct Frame {
  std::string_view before = {};
  std::string_view after = {};
};

Frame frame_of(ShardKind kind) {
  if (kind == ShardKind::tar) return {.before = "-", .after = ".tar"};
  return {.before = ".tfrecord-", .after = ""};
}

bool is_number_part(char found, char expected) {
  return expected == '0' ? found >= '0' && found <= '9' : found == expected;
}

}  // namespace

std::string zero_padded(std::uint64_t number, int digits) {
  detail::OutputText stream;
  stream << std::setw(digits) << std::setfill('0') << number;
  return stream.str();
}

std::string shard_name(const std::string& prefix, ShardKind kind, std::uint64_t shard, std::uint64_t shards) {
  const Frame frame = frame_of(kind);
  return text(prefix, frame.before, zero_padded(shard, kDigits), "-of-", zero_padded(shards, kDigits), frame.after);
}

bool is_shard_name(std::string_view name, std::string_view prefix, ShardKind kind) {
  const Frame frame = frame_of(kind);
  const std::size_t around = prefix.size() + frame.before.size() + frame.after.size();
  if (name.size() != around + kNumbers.size()) return false;
  if (!name.starts_with(prefix) || !name.ends_with(frame.after)) return false;
  name.remove_prefix(prefix.size());
  if (!name.starts_with(frame.before)) return false;
  const auto numbers = name.substr(frame.before.size(), kNumbers.size());
  return std::equal(numbers.begin(), numbers.end(), kNumbers.begin(), kNumbers.end(), is_number_part);
}

}  // namespace libtrain::pack
