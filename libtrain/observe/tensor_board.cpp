#include <libtrain/observe/tensor_board.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/file_descriptor.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/observe/detail/tensor_board_events.hpp>

namespace libtrain {
namespace {

double wall_time_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// TensorBoard reads the files of a folder in the order of their names: seconds, then a number that is unique in this
// process.
std::filesystem::path event_file_in(const std::filesystem::path& folder) {
  static std::atomic<int> files = 0;
  const auto host = detail::host_name();
  return folder / text("events.out.tfevents.", static_cast<std::int64_t>(wall_time_s()), ".",
                       host.empty() ? "localhost" : host, ".", ::getpid(), ".", files++);
}

[[noreturn]] void fail_event_file(const std::filesystem::path& file, const std::string& reason) {
  throw EnvironmentError(text("Cannot create TensorBoard's event file '", file.string(), "': ", reason,
                              ". Choose another folder for it."));
}

}  // namespace

// All members are guarded by `mutex`, except `descriptor` and `size`, which belong to the thread.
struct TensorBoardWriter::Shared {
  explicit Shared(const std::filesystem::path& file_path)
      : file(file_path.string()),
        descriptor(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666)) {}

  const std::string file;
  std::mutex mutex;
  std::condition_variable wakes_thread;
  std::condition_variable wakes_flush;
  std::string pending;  // whole records that nothing has been tried with
  std::int64_t pending_events = 0;
  std::size_t limit_bytes = 0;      // of pending records and those being written
  std::size_t unwritten_bytes = 0;  // those being written, or to be written again
  std::int64_t lost = 0;
  std::int64_t requested = 0;  // number of flushes
  std::int64_t flushed = 0;
  bool ends = false;
  bool has_ended = false;
  detail::FileDescriptor descriptor;
  off_t size = 0;

  static void run(const std::shared_ptr<Shared>& shared, std::chrono::milliseconds interval);

  // Empty, or why the records are not in the file; then the file is as before.
  std::string try_write(std::string_view records);
  bool is_removed() const;
};

bool TensorBoardWriter::Shared::is_removed() const {
  struct stat status{};
  return ::fstat(descriptor.get(), &status) == 0 && status.st_nlink == 0;
}

std::string TensorBoardWriter::Shared::try_write(std::string_view records) {
  if (records.empty()) return {};
  const auto written = detail::write_all(descriptor.get(), records);
  if (written == records.size()) {
    size += static_cast<off_t>(written);
    return {};
  }
  const int error = errno;
  // TensorBoard waits at an incomplete record for its rest, for ever.
  if (::ftruncate(descriptor.get(), size) != 0) descriptor.reset();
  return std::system_category().message(error);
}

// A record is in `pending`, then in `unwritten`, until it is in the file or lost. Once the file is removed or cannot be
// repaired, all further records are lost.
void TensorBoardWriter::Shared::run(const std::shared_ptr<Shared>& shared, std::chrono::milliseconds interval) {
  std::string unwritten;
  std::int64_t unwritten_events = 0;
  bool has_warned = false;
  std::unique_lock lock{shared->mutex};
  while (true) {
    shared->wakes_thread.wait_for(lock, interval, [&] { return shared->ends || shared->requested > shared->flushed; });
    const bool is_last = shared->ends;
    const auto requested = shared->requested;
    unwritten += shared->pending;
    unwritten_events += std::exchange(shared->pending_events, 0);
    shared->pending.clear();
    shared->unwritten_bytes = unwritten.size();
    lock.unlock();

    std::string failure = "the file was removed";
    bool can_recover = false;
    if (shared->descriptor.is_open() && !shared->is_removed()) {
      failure = shared->try_write(unwritten);
      can_recover = shared->descriptor.is_open();
    }
    if (!failure.empty() && !std::exchange(has_warned, true)) {
      log_warning(text("Cannot write to TensorBoard's event file '", shared->file, "': ", failure, ". ",
                       can_recover ? "Make room on the disk: later events are kept in memory for a while."
                                   : "The training continues without TensorBoard."));
    }

    lock.lock();
    if (failure.empty() || !can_recover || is_last) {
      if (!failure.empty()) shared->lost += unwritten_events;
      unwritten.clear();
      unwritten_events = 0;
      shared->unwritten_bytes = 0;
    }
    shared->flushed = requested;
    shared->has_ended = is_last;
    shared->wakes_flush.notify_all();
    if (is_last) return;
  }
}

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder) : TensorBoardWriter(folder, Options{}) {}

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder, Options options)
    : file_(event_file_in(folder)), end_timeout_(options.end_timeout) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail_event_file(file_, error.message());
  shared_ = std::make_shared<Shared>(file_);
  if (!shared_->descriptor.is_open()) fail_event_file(file_, std::system_category().message(errno));
  shared_->limit_bytes = options.pending_bytes;
  if (const auto failure = shared_->try_write(detail::version_record(wall_time_s())); !failure.empty()) {
    fail_event_file(file_, failure);
  }
  std::thread{&Shared::run, shared_, options.flush_interval}.detach();
}

TensorBoardWriter::~TensorBoardWriter() {
  std::unique_lock lock{shared_->mutex};
  shared_->ends = true;
  shared_->wakes_thread.notify_all();
  const bool has_ended = shared_->wakes_flush.wait_for(lock, end_timeout_, [&] { return shared_->has_ended; });
  const auto lost = shared_->lost;
  lock.unlock();
  if (!has_ended) {
    log_warning(text("The disk of TensorBoard's event file '", shared_->file, "' did not answer within ",
                     std::chrono::duration<double>(end_timeout_).count(), " s: its last events are missing."));
  } else if (lost > 0) {
    log_warning(text(lost, " events are missing in TensorBoard's event file '", shared_->file, "'."));
  }
}

void TensorBoardWriter::add(std::int64_t step, std::string_view summary) {
  const auto record = detail::event_record(step, wall_time_s(), summary);
  const std::lock_guard lock{shared_->mutex};
  if (shared_->pending.size() + shared_->unwritten_bytes + record.size() > shared_->limit_bytes) {
    ++shared_->lost;
    return;
  }
  shared_->pending += record;
  ++shared_->pending_events;
}

void TensorBoardWriter::log_scalar(std::string_view tag, std::int64_t step, double value) {
  add(step, detail::scalar_summary(tag, value));
}

void TensorBoardWriter::log_params(const NamedValues& values) {
  add(0, detail::session_start_summary(values, wall_time_s()));
}

void TensorBoardWriter::log_metrics(std::string_view event, std::int64_t step, std::span<const Metric> values) {
  for (const auto& [name, value] : values) log_scalar(metric_name(event, name), step, value);
}

void TensorBoardWriter::log_text(std::string_view tag, std::int64_t step, std::string_view text) {
  add(step, detail::text_summary(tag, text));
}

void TensorBoardWriter::log_image(std::string_view tag, std::int64_t step, const EncodedImage& image) {
  add(step, detail::image_summary(tag, image));
}

void TensorBoardWriter::log_histogram(std::string_view tag, std::int64_t step, const Histogram& histogram) {
  add(step, detail::histogram_summary(tag, histogram));
}

void TensorBoardWriter::end(RunStatus status) {
  add(0, detail::session_end_summary(status, wall_time_s()));
  flush();
}

void TensorBoardWriter::flush() {
  std::unique_lock lock{shared_->mutex};
  const auto number = ++shared_->requested;
  shared_->wakes_thread.notify_all();
  shared_->wakes_flush.wait_for(lock, end_timeout_, [&] { return shared_->flushed >= number; });
}

}  // namespace libtrain
