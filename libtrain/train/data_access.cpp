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

// Of one node's copying, between the thread that does it and the one that waits.
struct Staging {
  std::mutex mutex;
  std::condition_variable changed;
  data::StagingProgress progress = {};
  bool ended = false;
  data::StagingResult result = {};
  std::exception_ptr error;
};

// The copy on this node's disk, which stays as it is while this lives.
struct StagedData {
  explicit StagedData(data::StagingResult result) : files(result.folder.string()), in_use(std::move(result.in_use)) {}

  data::detail::LocalStorage files;
  std::shared_ptr<const void> in_use;
};

// "train-1f0c2a9b...": data of several places may be staged below one folder.
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

// A thread of its own, which is not joined where another node's failure ends the run before it is through.
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

// Ranks ask each other again and again, since one node may be done minutes before another, longer than a collective may
// take.
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
    // The last one to come sets the pace: who is through only waits.
    if (mine == State::done) std::this_thread::sleep_for(round);
    round = std::min(2 * round, kLongestRound);
  }
}

}  // namespace

std::shared_ptr<const data::Storage> open_data(const std::string& location, const DataAccess& access,
                                               Communicator& communicator,
                                               const std::function<void(const std::string&)>& show) {
  if (!access.stage.empty() && !access.cache.empty()) {
    throw UsageError("--stage and --cache are both given: data that are staged need no cache, so leave one out.");
  }
  if (access.cache.empty() && access.cache_limit_bytes != DataAccess{}.cache_limit_bytes) {
    throw UsageError("--cache-limit is given without --cache: name the cache's folder as well.");
  }
  auto storage = data::open_storage(location);
  if (!access.stage.empty()) {
    const CallPurpose purpose{communicator, "staging data"};
    const auto staging = start(storage, std::filesystem::path(access.stage) / folder_name(storage->identity()));
    const auto staged = std::make_shared<StagedData>(wait(*staging, communicator, storage->name(), show));
    return {staged, &staged->files};
  }
  if (access.cache.empty()) return storage;
  auto cache = std::make_shared<data::FileCache>(
      data::FileCacheOptions{.directory = access.cache, .limit_bytes = access.cache_limit_bytes});
  return std::make_shared<data::CachedStorage>(std::move(storage), std::move(cache));
}

}  // namespace libtrain::detail
