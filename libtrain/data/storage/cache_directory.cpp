#include <libtrain/data/storage/cache_directory.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <span>
#include <system_error>
#include <utility>

#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

namespace {

namespace fs = std::filesystem;

// The exclusive lock of an entry is held only to remove it; that of the account while entries are listed and evicted.
constexpr auto kEntryLockTimeout = std::chrono::seconds{1};
constexpr auto kAccountLockTimeout = std::chrono::seconds{60};

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

using AccountContent = std::array<std::uint64_t, 2>;
constexpr std::uint64_t kAccountMagic = 0x31746e75'6f636361;  // "account1" on a little-endian machine

// Follows the content: a constant that identifies the format, the key (3), the hash of the content (2), the hash of
// these six words (2).
using Trailer = std::array<std::uint64_t, 8>;
constexpr std::uint64_t kTrailerMagic = 0x31656863'61637274;  // "trcache1" on a little-endian machine

Trailer trailer_of(const CacheKey& key, const ContentHash& content) {
  Trailer trailer{kTrailerMagic, key.hash.high, key.hash.low, key.size, content.high, content.low, 0, 0};
  const auto check = content_hash(std::as_bytes(std::span{trailer}.first(6)));
  trailer[6] = check.high;
  trailer[7] = check.low;
  return trailer;
}

std::uint64_t saturating_sum(std::uint64_t a, std::uint64_t b) {
  return a > kNoLimit - b ? kNoLimit : a + b;
}

std::vector<StoredEntry> scan(const fs::path& folder) {
  std::vector<StoredEntry> result;
  std::error_code error;
  for (auto file = fs::directory_iterator(folder, error); !error && file != fs::directory_iterator();
       file.increment(error)) {
    const auto key = parse_content_hash(file->path().filename().string());
    struct stat status{};
    if (!key || stat(file->path().c_str(), &status) != 0) continue;
    result.push_back({.key = *key,
                      .bytes = disk_bytes(static_cast<std::uint64_t>(status.st_size)),
                      .last_used = nanoseconds_of(status.st_mtim)});
  }
  if (error) throw_disk_error("list the folder", folder, error.value());
  return result;
}

}  // namespace

std::uint64_t entry_bytes(std::uint64_t size) {
  return disk_bytes(saturating_sum(size, sizeof(Trailer)));
}

std::string find_wrong_length(const DiskFile& entry, const CacheKey& key) {
  const auto found = entry.size();
  const auto expected = key.size + sizeof(Trailer);
  return found == expected ? std::string{} : text("it has ", found, " bytes instead of ", expected);
}

std::string find_damage(const DiskFile& entry, const CacheKey& key) {
  if (auto wrong_length = find_wrong_length(entry, key); !wrong_length.empty()) return wrong_length;
  Trailer found{};
  if (entry.read(key.size, std::as_writable_bytes(std::span{found})) != sizeof(Trailer)) return "it cannot be read";
  const ContentHash content{.high = found[4], .low = found[5]};
  if (found != trailer_of(key, content)) return "its trailer is damaged";
  const auto actual = hash_of_beginning(entry, key.size);
  if (!actual) return "it cannot be read";
  if (*actual == content) return {};
  return text("its content has the hash ", to_string(*actual), " instead of ", to_string(content));
}

CacheDirectory::CacheDirectory(const fs::path& root, std::uint64_t limit_bytes, std::uint64_t reserve_bytes)
    : root_(fs::absolute(root)), limit_(limit_bytes), reserve_(reserve_bytes) {
  make_folder(root_ / "entries");
  make_folder(root_ / "fetching");
  account_ = open_to_write(root_ / "account");
  CacheAccount account(*this);
  for (const auto& left : scan(root_ / "fetching")) {
    const auto path = fetching_path(left.key);
    const auto file = DiskFile::open(path, O_RDWR);
    if (!file.is_open() || !try_lock(file, LockMode::exclusive) || !file.is_at(path)) continue;
    const std::uint64_t bytes = disk_bytes(file.size());
    if (unlink(path.c_str()) == 0) account.subtract(bytes);
  }
  account.add(0);  // writes the file if it is new
}

bool CacheDirectory::has(const ContentHash& key) const {
  return access(entry_path(key).c_str(), F_OK) == 0;
}

DiskFile CacheDirectory::open_entry(const ContentHash& key) const {
  auto file = DiskFile::open(entry_path(key), O_RDONLY);
  if (!file.is_open()) return {};
  const bool is_locked = lock_within(file, LockMode::shared, Deadline::after(kEntryLockTimeout));
  // An entry that was evicted between the open and the lock is still readable, but its space is counted as free.
  return is_locked && file.is_linked() ? std::move(file) : DiskFile{};
}

void CacheDirectory::touch(const ContentHash& key) const {
  set_modification_time(entry_path(key), wall_clock_nanoseconds());
}

void CacheDirectory::discard(const DiskFile& entry, const CacheKey& key) const {
  const auto path = entry_path(key.hash);
  CacheAccount account(*this);
  // Never more than is accounted for: the booked bytes, or the bytes of a recount since then.
  const std::uint64_t bytes = std::min(entry_bytes(key.size), disk_bytes(entry.size()));
  if (entry.is_at(path) && unlink(path.c_str()) == 0) account.subtract(bytes);
}

DiskFile CacheDirectory::claim(const ContentHash& key, const Deadline& deadline, const std::stop_token& stop) const {
  const auto path = fetching_path(key);
  while (true) {
    auto file = open_to_write(path);
    if (!lock_within(file, LockMode::exclusive, deadline, stop)) return {};
    // If the previous holder of the lock has completed or removed the file, the lock is not a claim.
    if (file.is_at(path)) return file;
  }
}

CacheAccount::CacheAccount(const CacheDirectory& directory) : directory_(directory), guard_(directory.mutex_) {
  const auto& file = directory.account_;
  if (!lock_within(file, LockMode::exclusive, Deadline::after(kAccountLockTimeout))) {
    throw DiskError(text("Cannot lock '", file.path().string(), "': another process has held it for ",
                         kAccountLockTimeout.count(), " s. Check what it waits for."),
                    ETIMEDOUT);
  }
  AccountContent content{};
  const auto got = file.read(0, std::as_writable_bytes(std::span{content}));
  if (got == sizeof(content) && content[0] == kAccountMagic) {
    used_ = content[1];
    return;
  }
  try {
    recount_entries();
  } catch (...) {
    unlock(file);
    throw;
  }
}

CacheAccount::~CacheAccount() {
  unlock(directory_.account_);
}

std::uint64_t CacheAccount::capacity() const {
  const std::uint64_t on_disk = saturating_sum(used_, available_bytes(directory_.root_));
  return std::min(directory_.limit_, on_disk - std::min(on_disk, directory_.reserve_));
}

std::uint64_t CacheAccount::missing(std::uint64_t bytes) const {
  const std::uint64_t wanted = saturating_sum(used_, bytes);
  const std::uint64_t over_limit = wanted - std::min(wanted, directory_.limit_);
  const std::uint64_t of_disk = saturating_sum(bytes, directory_.reserve_);
  return std::max(over_limit, of_disk - std::min(of_disk, available_bytes(directory_.root_)));
}

void CacheAccount::subtract(std::uint64_t bytes) {
  write(used_ - std::min(used_, bytes));
}

// Claims first, because they become entries without the account's lock: a claim that does so in between is seen twice
// instead of not at all, and counts as an entry.
std::vector<StoredEntry> CacheAccount::recount_entries() {
  auto claims = scan(directory_.root_ / "fetching");
  auto entries = scan(directory_.root_ / "entries");
  std::uint64_t used = 0;
  for (const auto& entry : entries) used = saturating_sum(used, entry.bytes);
  for (const auto& claim : claims) {
    const bool is_entry =
        std::any_of(entries.begin(), entries.end(), [&](const StoredEntry& entry) { return entry.key == claim.key; });
    if (!is_entry) used = saturating_sum(used, claim.bytes);
  }
  write(used);
  return entries;
}

bool CacheAccount::evict(const StoredEntry& entry) {
  const auto path = directory_.entry_path(entry.key);
  const auto file = DiskFile::open(path, O_RDONLY);
  if (!file.is_open() || !try_lock(file, LockMode::exclusive)) return false;
  const auto used = modification_time(path);
  if (!used || *used > entry.last_used || unlink(path.c_str()) != 0) return false;
  subtract(entry.bytes);
  return true;
}

void CacheAccount::write(std::uint64_t used) {
  const AccountContent content{kAccountMagic, used};
  const auto& file = directory_.account_;
  if (const int error = file.write(0, std::as_bytes(std::span{content})); error != 0) {
    throw_disk_error("write", file.path(), error);
  }
  used_ = used;
}

CacheClaim::CacheClaim(const CacheDirectory& directory, const CacheKey& key, DiskFile claim)
    : directory_(directory), key_(key), file_(std::move(claim)) {
  if (file_.size() == 0) return;
  CacheAccount account(directory);
  const std::uint64_t bytes = disk_bytes(file_.size());
  file_.resize(0);
  account.subtract(bytes);
}

CacheClaim::~CacheClaim() {
  if (is_committed_) return;
  // Removed while its lock is held: a process that waits for the lock then finds no file and makes its own claim.
  const auto path = directory_.fetching_path(key_.hash);
  try {
    // Under the account's lock: a recount in between would not include the claim, but its bytes would be subtracted.
    CacheAccount account(directory_);
    const std::uint64_t bytes = disk_bytes(file_.size());
    if (unlink(path.c_str()) == 0) account.subtract(bytes);
  } catch (const DiskError&) {  // the account stays too high until the next recount
    unlink(path.c_str());
  }
}

void CacheClaim::book(CacheAccount& account) const {
  const std::uint64_t bytes = entry_bytes(key_.size);
  account.add(bytes);
  const std::uint64_t length = key_.size + sizeof(Trailer);
  try {
    file_.resize(length);
  } catch (const DiskError&) {
    account.subtract(bytes);
    throw;
  }
  // ~CacheClaim() subtracts the bytes of the file's length.
  if (const int error = file_.allocate(length); error != 0) throw_disk_error("write", file_.path(), error);
}

void CacheClaim::commit(const ContentHash& content) {
  const auto trailer = trailer_of(key_, content);
  const int error = file_.write(key_.size, std::as_bytes(std::span{trailer}));
  if (error != 0) throw_disk_error("write", file_.path(), error);
  set_modification_time(file_, wall_clock_nanoseconds());
  const auto path = directory_.fetching_path(key_.hash);
  if (std::rename(path.c_str(), directory_.entry_path(key_.hash).c_str()) != 0) throw_disk_error("rename", path, errno);
  is_committed_ = true;
}

}  // namespace libtrain::data::detail
