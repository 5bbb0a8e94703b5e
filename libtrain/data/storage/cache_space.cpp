#include <libtrain/data/storage/cache_space.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <limits>
#include <span>
#include <tuple>
#include <utility>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/disk_file.hpp>

namespace libtrain::data::detail {

namespace {

// Held by others while they list the entries and remove some of them.
constexpr auto kAccountPatience = std::chrono::seconds{60};
constexpr std::uint64_t kAccountMagic = 0x31746e75'6f636361;  // "account1" on a little-endian machine
// Listing the entries takes time that grows with their number: one listing in so many removals at least pays for it.
constexpr std::size_t kEntriesPerRemoval = 64;

std::uint64_t saturating_sum(std::uint64_t a, std::uint64_t b) {
  return a > std::numeric_limits<std::uint64_t>::max() - b ? std::numeric_limits<std::uint64_t>::max() : a + b;
}

std::uint64_t bytes_of(const std::vector<StoredEntry>& entries) {
  std::uint64_t bytes = 0;
  for (const auto& entry : entries) bytes = saturating_sum(bytes, entry.bytes);
  return bytes;
}

}  // namespace

std::vector<StoredEntry> eviction_order(const std::vector<StoredEntry>& entries, const NextUse& next_use,
                                        std::uint64_t needed_at) {
  std::vector<std::pair<std::uint64_t, StoredEntry>> candidates;
  for (const auto& entry : entries) {
    const std::uint64_t next = next_use(entry.key);
    if (next >= needed_at) candidates.emplace_back(next, entry);
  }
  const auto rank = [](const auto& candidate) {
    const auto& [next, entry] = candidate;
    return std::tuple(~next, entry.last_used, entry.key.high, entry.key.low);
  };
  std::sort(candidates.begin(), candidates.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  std::vector<StoredEntry> order;
  order.reserve(candidates.size());
  for (const auto& candidate : candidates) order.push_back(candidate.second);
  return order;
}

// The account, locked against other threads and processes as long as this lives.
class CacheSpace::Account {
 public:
  explicit Account(const CacheSpace& space) : guard_(space.mutex_), space_(space) {
    if (lock_within(space.account_, LockMode::exclusive, Deadline::after(kAccountPatience))) return;
    throw DiskError(text("Cannot lock '", (space.directory_.root() / "account").string(),
                         "': another process has held it for ", kAccountPatience.count(), " s. See what it waits for."),
                    ETIMEDOUT);
  }
  Account(const Account&) = delete;  // one lock
  Account& operator=(const Account&) = delete;
  ~Account() { unlock(space_.account_); }

  // Counts anew where the file is new or damaged.
  std::uint64_t read() const {
    Content content{};
    const auto got = space_.account_.read(0, std::as_writable_bytes(std::span{content}));
    return got == sizeof(content) && content[0] == kAccountMagic ? content[1] : space_.take_stock().bytes;
  }

  void write(std::uint64_t used) const {
    const Content content{kAccountMagic, used};
    if (const int error = space_.account_.write(0, std::as_bytes(std::span{content})); error != 0) {
      throw_disk_error("write", space_.directory_.root() / "account", error);
    }
  }

  void subtract(std::uint64_t bytes) const {
    const std::uint64_t used = read();
    write(used - std::min(used, bytes));
  }

 private:
  using Content = std::array<std::uint64_t, 2>;

  const std::lock_guard<std::mutex> guard_;
  const CacheSpace& space_;
};

CacheSpace::CacheSpace(const CacheDirectory& directory, std::uint64_t limit_bytes, std::uint64_t reserve_bytes)
    : directory_(directory),
      limit_(limit_bytes),
      reserve_(reserve_bytes),
      account_(open_to_write(directory.root() / "account")) {}

bool CacheSpace::book(const DiskFile& claim, std::uint64_t size, const NextUse& next_use, std::uint64_t needed_at) {
  const std::uint64_t bytes = entry_bytes(size);
  if (bytes > limit_) return false;
  const Account account(*this);
  std::uint64_t used = account.read();
  if (missing(used, bytes) > 0) used = make_room(bytes, next_use, needed_at);
  const bool fits = missing(used, bytes) == 0;
  account.write(fits ? used + bytes : used);
  if (!fits) return false;
  try {
    claim.resize(size + kTrailerBytes);
  } catch (const DiskError&) {
    account.subtract(bytes);
    throw;
  }
  return true;
}

void CacheSpace::give_back(const DiskFile& claim) const noexcept {
  try {
    const Account account(*this);
    const std::uint64_t bytes = disk_bytes(claim.size());
    claim.resize(0);
    account.subtract(bytes);
  } catch (const DiskError&) {  // the account stays too high until it is counted anew
  }
}

void CacheSpace::abandon(const DiskFile& claim, const ContentHash& key) const noexcept {
  const auto path = directory_.fetching_path(key);
  try {
    // Together: whoever counts in between would not see the claim, and its bytes would be subtracted all the same.
    const Account account(*this);
    const std::uint64_t bytes = disk_bytes(claim.size());
    if (unlink(path.c_str()) == 0) account.subtract(bytes);
  } catch (const DiskError&) {  // the account stays too high until it is counted anew
    unlink(path.c_str());
  }
}

void CacheSpace::discard(const DiskFile& entry, const CacheKey& key) const {
  const auto path = directory_.entry_path(key.hash);
  const Account account(*this);
  // Never more than is accounted for: what was booked, or what was counted since then.
  const std::uint64_t bytes = std::min(entry_bytes(key.size), disk_bytes(entry.size()));
  if (entry.is_at(path) && unlink(path.c_str()) == 0) account.subtract(bytes);
}

void CacheSpace::remove_left_overs() const {
  const Account account(*this);
  const auto claims = directory_.claims();
  for (const auto& claim : claims) {
    const auto path = directory_.fetching_path(claim.key);
    const auto file = DiskFile::open(path, O_RDWR);
    if (!file.is_open() || !try_lock(file, LockMode::exclusive) || !file.is_at(path)) continue;
    const std::uint64_t bytes = disk_bytes(file.size());
    if (unlink(path.c_str()) == 0) account.subtract(bytes);
  }
  account.write(account.read());
}

std::uint64_t CacheSpace::capacity_bytes() const {
  std::uint64_t used = 0;
  {
    const Account account(*this);
    used = account.read();
  }
  const std::uint64_t on_disk = saturating_sum(used, available_bytes(directory_.root()));
  return std::min(limit_, on_disk - std::min(on_disk, reserve_));
}

// Claims first, since they become entries without the account's lock: one that does so meanwhile is seen twice rather
// than not at all, and counts as an entry.
CacheSpace::Stock CacheSpace::take_stock() const {
  auto claims = directory_.claims();
  Stock stock{.entries = directory_.entries()};
  std::erase_if(claims, [&](const StoredEntry& claim) {
    return std::any_of(stock.entries.begin(), stock.entries.end(),
                       [&](const StoredEntry& entry) { return entry.key == claim.key; });
  });
  stock.bytes = saturating_sum(bytes_of(stock.entries), bytes_of(claims));
  return stock;
}

// How much has to go before `bytes` more keep to both the limit and the reserve.
std::uint64_t CacheSpace::missing(std::uint64_t used, std::uint64_t bytes) const {
  const std::uint64_t over_limit = used - std::min(used, limit_ - bytes);
  const std::uint64_t wanted = saturating_sum(bytes, reserve_);
  return std::max(over_limit, wanted - std::min(wanted, available_bytes(directory_.root())));
}

// Returns what is used afterwards.
std::uint64_t CacheSpace::make_room(std::uint64_t bytes, const NextUse& next_use, std::uint64_t needed_at) {
  const auto [entries, used] = take_stock();
  const std::uint64_t wanted = missing(used, bytes);
  const auto order = eviction_order(entries, next_use, needed_at);
  if (wanted == 0 || bytes_of(order) < wanted) return used;

  std::uint64_t freed = 0;
  std::size_t removals = 0;
  for (const auto& entry : order) {
    if (freed >= wanted && removals >= entries.size() / kEntriesPerRemoval) break;
    if (!directory_.evict(entry.key)) continue;
    ++removals;
    freed += entry.bytes;
    evicted_bytes_ += entry.bytes;
  }
  evictions_ += removals;
  return used - std::min(used, freed);
}

}  // namespace libtrain::data::detail
