#include <libtrain/data/detail/group_order.hpp>

#include <array>
#include <limits>

#include <libtrain/base/error.hpp>
#include <libtrain/base/splitmix.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/detail/permutation.hpp>

namespace libtrain::data::detail {

namespace {

// "groups" in ASCII: keeps the key of the chunks apart from those that others make of the same seed and epoch.
constexpr std::uint64_t kGroups = 0x67726f757073u;

// The samples of a group in the joined chunks, before these are permuted.
struct Members {
  std::uint64_t count = 0;
  std::uint64_t begin = 0;      // of the chunks that the group fills
  std::uint64_t in_chunks = 0;  // how many samples these have; the others follow at `remaining`
  std::uint64_t remaining = 0;
  std::uint64_t placed = 0;

  std::uint64_t next() {
    const std::uint64_t number = placed++;
    return number < in_chunks ? begin + number : remaining + (number - in_chunks);
  }
};

std::vector<std::uint32_t> chunk_starts(std::uint64_t chunks, std::uint64_t chunk, std::uint64_t key) {
  const Permutation place_of(chunks, key, 0);
  std::vector<std::uint32_t> starts(chunks);
  for (std::uint64_t number = 0; number < chunks; ++number) {
    starts[number] = static_cast<std::uint32_t>(place_of(number) * chunk);
  }
  return starts;
}

}  // namespace

GroupOrder::GroupOrder(const std::vector<std::uint8_t>& groups, std::uint64_t chunk, std::uint64_t seed,
                       std::uint64_t epoch)
    : samples_(groups.size()) {
  const std::uint64_t size = groups.size();
  const std::uint64_t chunks = size / chunk;
  const std::uint64_t in_chunks = chunks * chunk;
  const Permutation sample_at(size, seed, epoch);

  std::array<Members, std::numeric_limits<std::uint8_t>::max() + 1> all{};
  for (const std::uint8_t group : groups) ++all[group].count;
  for (std::uint64_t i = in_chunks; i < size; ++i) {
    const std::uint64_t sample = sample_at(i);
    samples_[i] = static_cast<std::uint32_t>(sample);
    --all[groups[sample]].count;
  }
  std::uint64_t end = 0;
  for (Members& group : all) {
    group.begin = end;
    group.in_chunks = group.count - group.count % chunk;
    end += group.in_chunks;
  }
  for (Members& group : all) {
    group.remaining = end;
    end += group.count - group.in_chunks;
  }

  const std::uint64_t key = libtrain::detail::combine_keys(libtrain::detail::combine_keys(seed, epoch), kGroups);
  const std::vector<std::uint32_t> starts = chunk_starts(chunks, chunk, key);
  for (std::uint64_t i = 0; i < in_chunks; ++i) {
    const std::uint64_t sample = sample_at(i);
    const std::uint64_t place = all[groups[sample]].next();
    samples_[starts[place / chunk] + place % chunk] = static_cast<std::uint32_t>(sample);
  }
}

std::uint64_t GroupOrder::operator()(std::uint64_t i) const {
  if (i >= samples_.size()) {
    throw UsageError(text("Position ", i, " is outside a data set of ", samples_.size(), " samples."));
  }
  return samples_[i];
}

}  // namespace libtrain::data::detail
