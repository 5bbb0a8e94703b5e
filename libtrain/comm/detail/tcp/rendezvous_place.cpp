#include <libtrain/comm/detail/tcp/rendezvous_place.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include <libtrain/base/detail/digits.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/tcp/call_with_deadline.hpp>
#include <libtrain/comm/detail/tcp/local_address.hpp>
#include <libtrain/comm/detail/tcp/tcp_rendezvous.hpp>
#include <libtrain/launch/detail/host.hpp>

namespace libtrain::detail {

namespace {

constexpr std::string_view kTcpScheme = "tcp://";
constexpr std::string_view kFileScheme = "file://";
constexpr std::chrono::milliseconds kAnswerTime{2000};

class TcpPlace : public RendezvousPlace {
 public:
  explicit TcpPlace(std::string url) : url_(std::move(url)) {
    const auto parsed = parse_host_port(std::string_view{url_}.substr(kTcpScheme.size()));
    if (!parsed || !parsed->port) throw UsageError(text("'", url_, "' is not tcp://host:port."));
    host_ = parsed->host;
    port_ = *parsed->port;
  }

  std::string name() const override { return url_; }

  FileDescriptor serve(const Deadline& deadline) override {
    return listen_at(address_to_serve(host_, port_, deadline));
  }

  std::vector<SocketAddress> find(const Deadline& deadline) override {
    return addresses_to_reach(host_, port_, deadline);
  }

 private:
  std::string url_;
  std::string host_;
  int port_ = 0;
};

/// What rank 0 writes into a file, a line each, so that a user who looks into it understands what it is.
struct Note {
  SocketAddress address;
  Digest secret;
};

constexpr std::string_view kTitle = "libtrain rendezvous 1";

std::optional<Digest> parse_digest(const std::string& digits) {
  Digest digest{};
  if (digits.size() != 2 * digest.size()) return std::nullopt;
  for (std::size_t index = 0; index < digest.size(); ++index) {
    unsigned int byte = 0;
    for (const char digit : digits.substr(2 * index, 2)) {
      const auto value = std::string_view{"0123456789abcdef"}.find(digit);
      if (value == std::string_view::npos) return std::nullopt;
      byte = 16 * byte + static_cast<unsigned int>(value);
    }
    digest[index] = static_cast<unsigned char>(byte);
  }
  return digest;
}

// Nothing where rank 0 has not written, or something else is there.
std::optional<Note> parse_note(const std::string& content) {
  std::istringstream lines{content};
  std::string title;
  std::string address;
  std::string secret;
  if (!std::getline(lines, title) || !std::getline(lines, address) || !std::getline(lines, secret)) return std::nullopt;
  const auto parsed = SocketAddress::parse(address);
  const auto digest = parse_digest(secret);
  if (title != kTitle || !parsed || !digest) return std::nullopt;
  return Note{*parsed, *digest};
}

void require_own(const FileDescriptor& file, const std::string& path) {
  struct stat status{};
  if (fstat(file.get(), &status) != 0) throw_system_error("fstat");
  if (!S_ISREG(status.st_mode)) {
    throw EnvironmentError(text("The rendezvous file '", path, "' is not a regular file: give another path."));
  }
  if (status.st_uid != geteuid()) {
    throw EnvironmentError(text("The rendezvous file '", path, "' belongs to user ", status.st_uid,
                                ", and this process to user ", geteuid(), ": delete it, or give another path."));
  }
  // A process that has opened it already could read on after a chmod.
  const auto mode = status.st_mode & 0777;
  if ((mode & 077) != 0) {
    throw EnvironmentError(text("The rendezvous file '", path, "' is open to other users (mode 0", mode >> 6,
                                (mode >> 3) & 7, mode & 7,
                                "), who could join the job: delete it, or give a path where files can be private."));
  }
}

// Every rank makes the file where it is not there: a file system over a network asks its server then, instead of
// remembering for a minute that there was none.
std::string read_own_file(const std::string& path) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;  // a pipe would block
  const FileDescriptor file{open(path.c_str(), kFlags, S_IRUSR | S_IWUSR)};
  if (!file.is_open()) {
    throw EnvironmentError(text("Cannot write the rendezvous file '", path, "' (", std::strerror(errno),
                                "): give a path in an existing folder that all hosts share, and no symbolic link."));
  }
  require_own(file, path);
  std::array<char, 4096> buffer{};
  const auto got = read(file.get(), buffer.data(), buffer.size());
  return {buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
}

// Whole or not at all.
void write_own_file(const std::string& path, const std::string& content) {
  // Process numbers of containers repeat, and a job that was killed may have left its file.
  Digest random{};
  fill_random(random.data(), random.size());
  const auto partial = text(path, ".", hexadecimal(random).substr(0, 16));
  const FileDescriptor file{open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)};
  const bool written = file.is_open() &&
                       write(file.get(), content.data(), content.size()) == static_cast<ssize_t>(content.size()) &&
                       fsync(file.get()) == 0 && rename(partial.c_str(), path.c_str()) == 0;
  if (written) return;
  const int error = errno;
  if (file.is_open()) unlink(partial.c_str());
  throw EnvironmentError(text("Cannot write the rendezvous file '", path, "' (", std::strerror(error),
                              "): give a path on a file system with space left."));
}

class FilePlace : public RendezvousPlace {
 public:
  FilePlace(const std::string& url, TcpOptions options)
      : path_(url.substr(kFileScheme.size())), options_(std::move(options)) {}

  std::string name() const override { return text(kFileScheme, path_); }

  FileDescriptor serve(const Deadline& deadline) override {
    require_unused(read(deadline));
    auto listener = listen_at(address_of_rank_0(options_, deadline));
    fill_random(secret_.data(), secret_.size());
    const auto content = text(kTitle, '\n', local_address(listener).name(), '\n', hexadecimal(secret_), '\n');
    require_answer(call_with_deadline(deadline, [path = path_, content] {
      write_own_file(path, content);
      return std::string{};
    }));
    return listener;
  }

  std::vector<SocketAddress> find(const Deadline& deadline) override {
    const auto note = parse_note(read(deadline));
    if (!note) return {};
    secret_ = note->secret;
    return {note->address};
  }

  std::optional<Digest> secret() const override { return secret_; }

  void close() noexcept override { unlink(path_.c_str()); }

 private:
  // A file system over a network may not answer.
  std::string read(const Deadline& deadline) const {
    return require_answer(
        call_with_deadline(deadline.later_by(kAnswerTime), [path = path_] { return read_own_file(path); }));
  }

  std::string require_answer(std::optional<std::string> answer) const {
    if (answer) return std::move(*answer);
    throw CommunicationError(text("The file system of the rendezvous file '", path_,
                                  "' did not answer before the deadline: give a path on another one."));
  }

  // Nothing that a user may have meant to keep is overwritten, nor what a job needs that is still about to meet.
  void require_unused(const std::string& content) const {
    if (content.empty()) return;
    const auto note = parse_note(content);
    if (!note) {
      throw EnvironmentError(
          text("The rendezvous file '", path_, "' holds something else: delete it, or give another path."));
    }
    if (const auto job = job_at(note->address)) {
      throw EnvironmentError(text("The ranks of another job (", *job, ") are meeting in the rendezvous file '", path_,
                                  "': give each job a file of its own."));
    }
  }

  std::string path_;
  TcpOptions options_;
  Digest secret_{};
};

}  // namespace

std::unique_ptr<RendezvousPlace> open_tcp_place(const std::string& url) {
  return std::make_unique<TcpPlace>(url);
}

std::unique_ptr<RendezvousPlace> open_file_place(const std::string& url, const TcpOptions& options) {
  return std::make_unique<FilePlace>(url, options);
}

}  // namespace libtrain::detail
