#include <libtrain/train/data_access.hpp>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/agreement.hpp>
#include <libtrain/data/storage/cached_storage.hpp>
#include <libtrain/data/storage/content_hash.hpp>
#include <libtrain/data/storage/detail/local_storage.hpp>
#include <libtrain/data/storage/file_cache.hpp>
#include <libtrain/data/storage/open_storage.hpp>
#include <libtrain/data/storage/staging.hpp>

namespace libtrain::detail {

namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds kFirstRound{10};
constexpr Milliseconds kLongestRound{100};  // below every --timeout
constexpr std::chrono::seconds kShowInterval{5};

// Shared by the thread that copies the data to this node and the thread that waits for it.
struct Staging {
  std::mutex mutex;
  std::condition_variable changed;
  data::StagingProgress progress = {};
  bool ended = false;
  data::StagingResult result = {};
  std::exception_ptr error;
};

// The copy on this node's disk, which is not replaced or removed while this object exists.
struct StagedData {
  explicit StagedData(data::StagingResult result) : files(result.folder.string()), in_use(std::move(result.in_use)) {}

  data::detail::LocalStorage files;
  std::shared_ptr<const void> in_use;
};

// "train-1f0c2a9b...": data of several locations may be staged to one folder.
std::string folder_name(const std::string& identity) {
  const auto slash = identity.find_last_of('/');
  std::string last = identity.substr(slash == std::string::npos ? 0 : slash + 1);
  std::erase_if(last, [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '_'; });
  data::ContentHasher hasher;
  hasher.update(identity);
  return text(last, last.empty() ? "" : "-", to_string(hasher.digest()));
}

std::string describe(const data::StagingProgress& progress, const std::string& name) {
  const auto megabytes = [](std::uint64_t bytes) { return bytes / 1'000'000; };
  return text("staging '", name, "': ", progress.files_done, " of ", progress.files_total, " files, ",
              megabytes(progress.bytes_done), " of ", megabytes(progress.bytes_total), " MB");
}

// On a thread that is not joined: another node's failure may end the run before the copy is complete.
std::shared_ptr<Staging> start(std::shared_ptr<const data::Storage> from, std::filesystem::path to) {
  auto staging = std::make_shared<Staging>();
  std::thread([staging, from = std::move(from), to = std::move(to)] {
    const auto note = [&](const data::StagingProgress& progress) {
      const std::lock_guard lock(staging->mutex);
      staging->progress = progress;
    };
    data::StagingResult result;
    std::exception_ptr error;
    try {
      result = data::stage(*from, "", to, {.progress = note});
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(staging->mutex);
    staging->result = std::move(result);
    staging->error = error;
    staging->ended = true;
    staging->changed.notify_all();
  }).detach();
  return staging;
}

enum class State : char { copying = 'c', done = 'd', failed = 'f' };

// Ranks exchange their states repeatedly: one node may finish minutes before another, which exceeds the timeout of a
// collective.
data::StagingResult wait(Staging& staging, Communicator& communicator, const std::string& name,
                         const std::function<void(const std::string&)>& show) {
  Milliseconds round = kFirstRound;
  auto shown = std::chrono::steady_clock::now();
  while (true) {
    auto mine = State::copying;
    std::string progress;
    {
      std::unique_lock lock(staging.mutex);
      staging.changed.wait_for(lock, round, [&] { return staging.ended; });
      if (staging.ended) mine = staging.error ? State::failed : State::done;
      if (!staging.ended && std::chrono::steady_clock::now() - shown > kShowInterval) {
        shown = std::chrono::steady_clock::now();
        progress = describe(staging.progress, name);
      }
    }
    if (!progress.empty()) show(progress);
    const auto states = join(communicator.all_gather_bytes({static_cast<char>(mine)}), "");
    const auto has = [&](State state) { return states.find(static_cast<char>(state)) != std::string::npos; };
    if (has(State::failed) || !has(State::copying)) {
      throw_together(communicator, "Staging data", mine == State::failed ? staging.error : nullptr);
      return std::move(staging.result);
    }
    // The ranks that still copy set the pace.
    if (mine == State::done) std::this_thread::sleep_for(round);
    round = std::min(2 * round, kLongestRound);
  }
}

// Copies below the data would be listed as data.
void require_outside(const std::string& option, const std::string& folder, const data::Storage& storage) {
  if (!data::detail::is_inside(folder, storage)) return;
  throw UsageError(text("Option ", option, " is '", folder, "', which is in the data at '", storage.name(),
                        "', where the copies would be taken for data. Choose a folder elsewhere."));
}

}  // namespace

std::shared_ptr<const data::Storage> open_data(const std::string& location, const DataAccess& access,
                                               Communicator& communicator,
                                               const std::function<void(const std::string&)>& show) {
  if (!access.stage.empty() && !access.cache.empty()) {
    throw UsageError("--stage and --cache are both given. Staged data need no cache: remove one of the two options.");
  }
  if (access.cache.empty() && access.cache_limit_bytes != DataAccess{}.cache_limit_bytes) {
    throw UsageError("--cache-limit is given without --cache. Set --cache to the folder of the cache.");
  }
  auto storage = data::open_storage(location);
  if (!access.stage.empty()) {
    require_outside("--stage", access.stage, *storage);
    const CallPurpose purpose{communicator, "staging data"};
    const auto staging = start(storage, std::filesystem::path(access.stage) / folder_name(storage->identity()));
    const auto staged = std::make_shared<StagedData>(wait(*staging, communicator, storage->name(), show));
    return {staged, &staged->files};
  }
  if (access.cache.empty()) return storage;
  require_outside("--cache", access.cache, *storage);
  auto cache = std::make_shared<data::FileCache>(
      data::FileCacheOptions{.directory = access.cache, .limit_bytes = access.cache_limit_bytes});
  return std::make_shared<data::CachedStorage>(std::move(storage), std::move(cache));
}

}  // namespace libtrain::detail
