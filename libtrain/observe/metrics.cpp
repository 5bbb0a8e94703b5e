#include <libtrain/observe/metrics.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <fstream>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <libtrain/base/detail/file_lock.hpp>
#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/detail/utc_time.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/file_descriptor.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain {
namespace {

using detail::LockResult;

[[noreturn]] void fail(std::string_view action, const std::filesystem::path& file, int error) {
  throw EnvironmentError(
      text("Cannot ", action, " the metrics file '", file.string(), "': ", std::system_category().message(error), "."));
}

std::filesystem::path file_in(const std::filesystem::path& directory) {
  return directory / "metrics.jsonl";
}

std::filesystem::path create_directory_of(const std::filesystem::path& file) {
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  if (error) fail("create the directory of", file, error.value());
  return file;
}

bool is_regular(int descriptor) {
  struct stat status{};
  return ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

// Only regular files are locked.
LockResult try_lock(int descriptor) {
  return is_regular(descriptor) ? detail::try_lock_file(descriptor) : LockResult::taken;
}

// The process that writes to the file: that of the latest `run` event without a `summary` event.
std::string writer_of(const std::filesystem::path& file) try {
  std::vector<nlohmann::json> runs;
  std::ifstream stream{file};
  for (std::string line; std::getline(stream, line);) {
    const bool begins = line.starts_with(R"({"event":"run",)");
    if (!begins && !line.starts_with(R"({"event":"summary",)")) continue;
    auto record = nlohmann::json::parse(line, nullptr, false);
    if (!record.is_object()) continue;
    if (begins) {
      runs.push_back(std::move(record));
    } else {
      std::erase_if(runs, [&](const auto& run) { return run.value("run_id", "") == record.value("run_id", ""); });
    }
  }
  if (runs.empty()) return "Another run";
  const auto& run = runs.back();
  const auto process = run.value("process", 0);
  const auto host = run.value("host", "?");
  return text(process == ::getpid() && host == detail::host_name() ? "This process" : "Another run", " (run ",
              run.value("run_id", "?"), ", process ", process, " on ", host, ", since ",
              detail::utc_time(static_cast<std::time_t>(run.value("time", 0.0))), ")");
} catch (const nlohmann::json::exception&) {
  return "Another run";  // not a record of this library
}

[[noreturn]] void refuse(const std::filesystem::path& file) {
  const auto writer = writer_of(file);
  throw EnvironmentError(text(writer, " is writing to '", file.string(), "'. ",
                              writer.starts_with("This")
                                  ? "Use its MetricsWriter, Context::metrics(), or another folder."
                                  : "Wait until that run has ended, or set --output to another folder."));
}

double seconds_since_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

class MetricsWriter::File {
 public:
  // Without `in_use` the file is not locked.
  File(std::filesystem::path path, std::optional<InUse> in_use)
      : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666)) {
    if (!descriptor_.is_open()) fail("open", path_, errno);
    const auto lock = in_use ? try_lock(descriptor_.get()) : LockResult::taken;
    if (lock == LockResult::refused && in_use == InUse::refused) refuse(path_);
    if (lock == LockResult::unavailable) {
      log_warning(text("The file system cannot lock '", path_.string(), "' (", std::system_category().message(errno),
                       "). A second run that writes to it at the same time is not detected."));
    }
    // Another writer of the file may be in the middle of its last line.
    if (lock != LockResult::refused) drop_unfinished_line();
  }

  void append(std::string_view line) {
    const std::lock_guard lock{mutex_};
    const auto written = detail::write_all(descriptor_.get(), line);
    if (written == line.size()) return;
    const int error = errno;
    take_back(written);
    fail("write to", path_, error);
  }

  void sync() {
    const std::lock_guard lock{mutex_};
    // EINVAL: a pipe or a device such as /dev/stdout has nothing to sync.
    if (::fsync(descriptor_.get()) != 0 && errno != EINVAL && errno != EROFS) fail("store", path_, errno);
  }

 private:
  // Leaves the file unchanged if another process has appended after the part that was written.
  void take_back(std::size_t written) {
    if (written == 0) return;
    const auto end = ::lseek(descriptor_.get(), 0, SEEK_CUR);
    struct stat status{};
    if (end < 0 || ::fstat(descriptor_.get(), &status) != 0 || status.st_size != end) return;
    truncate_to(end - static_cast<off_t>(written));
  }

  void drop_unfinished_line() {
    struct stat status{};
    if (::fstat(descriptor_.get(), &status) != 0) fail("examine", path_, errno);
    if (!S_ISREG(status.st_mode)) return;
    off_t end = status.st_size;
    char block[4096];
    while (end > 0) {
      const off_t begin = end > off_t{sizeof block} ? end - off_t{sizeof block} : 0;
      const auto got = ::pread(descriptor_.get(), block, static_cast<std::size_t>(end - begin), begin);
      if (got != end - begin) fail("read", path_, got < 0 ? errno : EIO);
      const auto newline = std::string_view{block, static_cast<std::size_t>(got)}.rfind('\n');
      end = newline == std::string_view::npos ? begin : begin + static_cast<off_t>(newline) + 1;
      if (newline != std::string_view::npos) break;
    }
    if (end == status.st_size) return;
    refuse_foreign_text_at(end);
    if (!truncate_to(end)) fail("shorten", path_, errno);
  }

  // A truncated record begins with a brace, or with zeros after a power failure; other text is the user's.
  void refuse_foreign_text_at(off_t offset) const {
    char first = 0;
    if (::pread(descriptor_.get(), &first, 1, offset) != 1) fail("read", path_, errno);
    if (first == '{' || first == '\0') return;
    throw EnvironmentError(text("'", path_.string(), "' does not end in a metrics record (byte ", offset,
                                "). Set another file for the metrics."));
  }

  bool truncate_to(off_t size) { return ::ftruncate(descriptor_.get(), size) == 0; }

  std::filesystem::path path_;
  detail::FileDescriptor descriptor_;
  std::mutex mutex_;
};

MetricsWriter::MetricsWriter(std::unique_ptr<File> file) : file_(std::move(file)) {}

MetricsWriter::MetricsWriter(const std::filesystem::path& directory, std::string run_id, InUse in_use)
    : file_(std::make_unique<File>(create_directory_of(file_in(directory)), in_use)), run_id_(std::move(run_id)) {}

void MetricsWriter::require_free(const std::filesystem::path& directory) {
  const auto file = file_in(directory);
  const detail::FileDescriptor descriptor{::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK)};
  if (descriptor.is_open() && try_lock(descriptor.get()) == LockResult::refused) refuse(file);
}

MetricsWriter MetricsWriter::to_file(const std::filesystem::path& file) {
  return MetricsWriter{std::make_unique<File>(file, std::nullopt)};
}

MetricsWriter MetricsWriter::disabled() {
  return MetricsWriter{std::unique_ptr<File>{}};
}

MetricsWriter::MetricsWriter(MetricsWriter&&) noexcept = default;
MetricsWriter& MetricsWriter::operator=(MetricsWriter&&) noexcept = default;
MetricsWriter::~MetricsWriter() = default;

void MetricsWriter::write(const Record& record) {
  if (file_) file_->append(record.line(seconds_since_epoch(), run_id_));
}

void MetricsWriter::sync() {
  if (file_) file_->sync();
}

}  // namespace libtrain
