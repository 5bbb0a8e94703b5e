#include <libtrain/train/detail/collective_dump.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <mutex>
#include <random>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/detail/digits.hpp>
#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/detail/redact.hpp>
#include <libtrain/base/detail/utc_time.hpp>
#include <libtrain/base/file_descriptor.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/collective_log.hpp>
#include <libtrain/comm/detail/tcp/call_with_deadline.hpp>

namespace libtrain::detail {

namespace {

namespace fs = std::filesystem;
using Places = std::vector<std::optional<Position>>;

constexpr std::chrono::milliseconds kTimeToWrite{1000};
constexpr std::chrono::milliseconds kTimeToRead{500};
constexpr std::chrono::milliseconds kBetweenLooks{50};

fs::path file_of(const fs::path& directory, int rank) {
  return directory / text("collectives.rank", rank, ".txt");
}

// Returns false and sets errno on failure. Does not follow links, which other users may create in a shared folder.
bool write_partial(const std::string& path, const std::string& content) {
  const FileDescriptor file{open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666)};
  return file.is_open() && write_all(file.get(), content) == content.size();
}

// Returns the error, or an empty string.
std::string write_file(const fs::path& file, const std::string& content) {
  std::error_code error;
  if (file.has_parent_path()) fs::create_directories(file.parent_path(), error);
  if (error) return error.message();
  const auto partial = text(file.string(), ".partial-", getpid(), '-', hexadecimal(std::random_device{}(), 8));
  if (write_partial(partial, content)) {
    fs::rename(partial, file, error);
  } else {
    error = {errno, std::system_category()};
  }
  if (!error) return {};
  std::error_code ignored;
  fs::remove(partial, ignored);
  return error.message();
}

std::string content_of(const fs::path& file) {
  std::ifstream stream{file};
  std::ostringstream content;
  content << stream.rdbuf();
  return content.str();
}

// Reads the files that were missing so far. Returns true if none is missing now.
bool look(Places& places, const fs::path& directory, const std::string& run, const Deadline& deadline) {
  bool complete = true;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    if (places[rank]) continue;
    places[rank] = find_position(content_of(file_of(directory, static_cast<int>(rank))), run);
    complete = complete && places[rank].has_value();
    if (deadline.expired()) return complete && rank + 1 == places.size();
  }
  return complete;
}

Places read_places(const fs::path& directory, const std::string& run, int world_size, const Deadline& deadline) {
  Places places(static_cast<std::size_t>(world_size));
  while (!look(places, directory, run, deadline) && !deadline.expired()) std::this_thread::sleep_for(kBetweenLooks);
  return places;
}

}  // namespace

// Shared with threads that may still wait for a disk that does not answer.
struct CollectiveDump::State {
  State(std::shared_ptr<Communicator> communicator, fs::path directory, std::string run)
      : communicator(std::move(communicator)), directory(std::move(directory)), run(std::move(run)) {}

  fs::path own_file() const { return file_of(directory, communicator->rank()); }

  const std::shared_ptr<Communicator> communicator;
  const fs::path directory;
  const std::string run;
  std::mutex writing;
  std::atomic<bool> has_failed = false;  // the log of its own failure has more information than a requested one
};

CollectiveDump::CollectiveDump(std::shared_ptr<Communicator> communicator, fs::path directory, std::string run)
    : state_(std::make_shared<State>(std::move(communicator), std::move(directory), std::move(run))) {
  // If the communicator keeps records, it has some here.
  if (state_->communicator->recent_collectives().empty()) return;
  requests_.emplace(state_->run, state_->communicator->rank(), [state = state_] {
    try {
      write(state, std::nullopt);
    } catch (...) {
      // The requesting rank reports without this log.
    }
  });
}

CollectiveDump::~CollectiveDump() = default;

// Returns the error, or an empty string. `failure` is std::nullopt if another rank failed.
std::string CollectiveDump::write(const std::shared_ptr<State>& state, const std::optional<std::string>& failure) {
  const auto& communicator = *state->communicator;
  const CollectiveLog log{
      .run = state->run,
      .who = text("rank ", communicator.rank(), " of ", communicator.world_size(), " on ", host_name(), " (process ",
                  getpid(), "), ", utc_time(std::time(nullptr))),
      .failure = failure ? text("failed: ", redact(*failure)) : "has not failed, but another rank of this host has",
      .records = communicator.recent_collectives(),
      .now = WorkTimes::Clock::now()};
  const auto error = call_with_deadline(Deadline::after(kTimeToWrite),
                                        [state, content = to_text(log), is_request = !failure.has_value()] {
                                          const std::lock_guard lock(state->writing);
                                          if (is_request && state->has_failed) return std::string{};
                                          return write_file(state->own_file(), content);
                                        });
  return error.value_or("the disk does not answer");
}

bool CollectiveDump::write_after(const Failure& failure) noexcept try {
  const auto& communicator = *state_->communicator;
  const auto records = communicator.recent_collectives();
  if (records.empty() || (failure.code != ExitCode::communication && !any_under_way(records))) return false;
  state_->has_failed = true;
  if (requests_) requests_->ask_others(communicator.world_size());
  error_ = write(state_, failure.message);
  return true;
} catch (...) {
  return false;  // the failure itself must still be reported
}

std::string CollectiveDump::where_to_look() const {
  if (!error_.empty()) {
    return text("Cannot write this rank's last collectives to '", state_->own_file().string(), "': ", error_, ".");
  }
  return text("Each rank's last collectives are in ", (state_->directory / "collectives.rank*.txt").string(), ".");
}

std::string CollectiveDump::where_ranks_are(std::chrono::milliseconds limit) const noexcept try {
  const auto deadline = Deadline::after(limit);
  const auto places = call_with_deadline(deadline.later_by(kTimeToRead), [state = state_, deadline] {
    return read_places(state->directory, state->run, state->communicator->world_size(), deadline);
  });
  return places ? describe_places(*places) : std::string{};
} catch (...) {
  return {};
}

}  // namespace libtrain::detail
