#include <libtrain/observe/metrics.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <mutex>
#include <string_view>
#include <system_error>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain {
namespace {

[[noreturn]] void fail(std::string_view action, const std::filesystem::path& file, int error) {
  throw EnvironmentError(
      text("Cannot ", action, " the metrics file '", file.string(), "': ", std::system_category().message(error), "."));
}

std::filesystem::path file_in(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) fail("create the directory of", directory / "metrics.jsonl", error.value());
  return directory / "metrics.jsonl";
}

double seconds_since_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

class MetricsWriter::File {
 public:
  explicit File(std::filesystem::path path) : path_(std::move(path)) {
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail("open", path_, errno);
    try {
      drop_unfinished_line();
    } catch (...) {
      ::close(descriptor_);
      throw;
    }
  }

  File(const File&) = delete;  // owns the descriptor
  File& operator=(const File&) = delete;
  ~File() { ::close(descriptor_); }

  void append(std::string_view line) {
    const std::lock_guard lock{mutex_};
    std::size_t done = 0;
    while (done < line.size()) {
      const auto written = ::write(descriptor_, line.data() + done, line.size() - done);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        const int error = written == 0 ? ENOSPC : errno;
        take_back(done);
        fail("write to", path_, error);
      }
      done += static_cast<std::size_t>(written);
    }
  }

  void sync() {
    const std::lock_guard lock{mutex_};
    // A pipe or a device such as /dev/stdout has nothing to wait for.
    if (::fsync(descriptor_) != 0 && errno != EINVAL && errno != EROFS) fail("store", path_, errno);
  }

 private:
  // Leaves the file alone where another process has appended behind the part that was written.
  void take_back(std::size_t written) {
    if (written == 0) return;
    const auto end = ::lseek(descriptor_, 0, SEEK_CUR);
    struct stat status{};
    if (end < 0 || ::fstat(descriptor_, &status) != 0 || status.st_size != end) return;
    truncate_to(end - static_cast<off_t>(written));
  }

  void drop_unfinished_line() {
    struct stat status{};
    if (::fstat(descriptor_, &status) != 0) fail("examine", path_, errno);
    if (!S_ISREG(status.st_mode)) return;
    off_t end = status.st_size;
    char block[4096];
    while (end > 0) {
      const off_t begin = end > off_t{sizeof block} ? end - off_t{sizeof block} : 0;
      const auto got = ::pread(descriptor_, block, static_cast<std::size_t>(end - begin), begin);
      if (got != end - begin) fail("read", path_, got < 0 ? errno : EIO);
      const auto newline = std::string_view{block, static_cast<std::size_t>(got)}.rfind('\n');
      end = newline == std::string_view::npos ? begin : begin + static_cast<off_t>(newline) + 1;
      if (newline != std::string_view::npos) break;
    }
    if (end == status.st_size) return;
    refuse_foreign_text_at(end);
    if (!truncate_to(end)) fail("shorten", path_, errno);
  }

  // A record cut short begins with a brace, or with zeros after a power cut; anything else is not ours to remove.
  void refuse_foreign_text_at(off_t offset) const {
    char first = 0;
    if (::pread(descriptor_, &first, 1, offset) != 1) fail("read", path_, errno);
    if (first == '{' || first == '\0') return;
    throw EnvironmentError(text("'", path_.string(), "' does not end in a metrics record (byte ", offset,
                                "); name another file to write metrics to."));
  }

  bool truncate_to(off_t size) { return ::ftruncate(descriptor_, size) == 0; }

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::mutex mutex_;
};

MetricsWriter::MetricsWriter(std::unique_ptr<File> file) : file_(std::move(file)) {}

MetricsWriter::MetricsWriter(const std::filesystem::path& directory)
    : file_(std::make_unique<File>(file_in(directory))) {}

MetricsWriter MetricsWriter::to_file(const std::filesystem::path& file) {
  return MetricsWriter{std::make_unique<File>(file)};
}

MetricsWriter MetricsWriter::disabled() {
  return MetricsWriter{std::unique_ptr<File>{}};
}

MetricsWriter::MetricsWriter(MetricsWriter&&) noexcept = default;
MetricsWriter& MetricsWriter::operator=(MetricsWriter&&) noexcept = default;
MetricsWriter::~MetricsWriter() = default;

void MetricsWriter::write(const Record& record) {
  if (file_) file_->append(record.line(seconds_since_epoch()));
}

void MetricsWriter::sync() {
  if (file_) file_->sync();
}

}  // namespace libtrain
