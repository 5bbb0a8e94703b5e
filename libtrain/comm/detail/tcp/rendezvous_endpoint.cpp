#include <libtrain/comm/detail/tcp/rendezvous_endpoint.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
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
constexpr std::chrono::milliseconds kFileSystemTimeout{2000};  // beyond the deadline

class TcpEndpoint : public RendezvousEndpoint {
 public:
  explicit TcpEndpoint(std::string url) : url_(std::move(url)) {
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

/// The content of the file that rank 0 writes: a title, and one line for each member.
struct Note {
  SocketAddress address;
  Digest secret;
};

constexpr std::string_view kTitle = "libtrain rendezvous 1";

std::optional<Digest> parse_digest(const std::string& digits) {
  Digest digest{};
  if (digits.size() != 2 * digest.size()) return std::nullopt;
  for (std::size_t index = 0; index < digest.size(); ++index) {
    const char* const first = digits.data() + 2 * index;
    std::from_chars(first, first + 2, digest[index], 16);
  }
  return hexadecimal(digest) == digits ? std::optional{digest} : std::nullopt;
}

// std::nullopt if rank 0 has not written the file.
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
    throw EnvironmentError(text("The rendezvous file '", path, "' is not a regular file. Give another path."));
  }
  if (status.st_uid != geteuid()) {
    throw EnvironmentError(text("The rendezvous file '", path, "' belongs to user ", status.st_uid,
                                ", but this process to user ", geteuid(), ". Delete it, or give another path."));
  }
  // chmod would not help: a process that has already opened the file could still read it.
  const auto mode = status.st_mode & 0777;
  if ((mode & 077) != 0) {
    throw EnvironmentError(text("The rendezvous file '", path, "' is open to other users (mode 0", mode >> 6,
                                (mode >> 3) & 7, mode & 7,
                                "), who could join the job. Delete it, or give a path where files can be private."));
  }
}

// Every rank creates the file if it does not exist: a network file system then asks its server, and does not cache for
// a minute that there is none.
std::string read_own_file(const std::string& path) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;  // a pipe would block
  const FileDescriptor file{open(path.c_str(), kFlags, S_IRUSR | S_IWUSR)};
  if (!file.is_open()) {
    throw EnvironmentError(text("Cannot write the rendezvous file '", path, "' (", std::strerror(errno),
                                "). Give a path in an existing folder that all hosts share, not a symbolic link."));
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
  const bool written = file.is_open() && write_all(file.get(), content) == content.size() && fsync(file.get()) == 0 &&
                       rename(partial.c_str(), path.c_str()) == 0;
  if (written) return;
  const int error = errno;
  if (file.is_open()) unlink(partial.c_str());
  throw EnvironmentError(text("Cannot write the rendezvous file '", path, "' (", std::strerror(error),
                              "): give a path on a file system with space left."));
}

class FileEndpoint : public RendezvousEndpoint {
 public:
  FileEndpoint(const std::string& url, TcpOptions options)
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

  // Another job may have replaced the file: while this job's ranks connect, this address does not answer its rank 0.
  void close() noexcept override try {
    if (access(path_.c_str(), F_OK) != 0) return;
    const auto note = parse_note(read_own_file(path_));
    if (note && note->secret == secret_) unlink(path_.c_str());
  } catch (...) {
    // It is not this job's file any more.
  }

 private:
  // A network file system may not answer.
  std::string read(const Deadline& deadline) const {
    return require_answer(
        call_with_deadline(deadline.later_by(kFileSystemTimeout), [path = path_] { return read_own_file(path); }));
  }

  std::string require_answer(std::optional<std::string> answer) const {
    if (answer) return std::move(*answer);
    throw CommunicationError(text("The file system of the rendezvous file '", path_,
                                  "' did not answer before the deadline. Give a path on another file system."));
  }

  // Other files, and the file of a job whose ranks still connect, must not be overwritten.
  void require_unused(const std::string& content) const {
    if (content.empty()) return;
    const auto note = parse_note(content);
    if (!note) {
      throw EnvironmentError(
          text("The rendezvous file '", path_, "' was not written by libtrain. Delete it, or give another path."));
    }
    if (const auto job = job_at(note->address)) {
      throw EnvironmentError(
          text("Another job (", *job, ") uses the rendezvous file '", path_, "'. Give each job its own file."));
    }
  }

  std::string path_;
  TcpOptions options_;
  Digest secret_{};
};

}  // namespace

std::unique_ptr<RendezvousEndpoint> open_tcp_endpoint(const std::string& url) {
  return std::make_unique<TcpEndpoint>(url);
}

std::unique_ptr<RendezvousEndpoint> open_file_endpoint(const std::string& url, const TcpOptions& options) {
  return std::make_unique<FileEndpoint>(url, options);
}

}  // namespace libtrain::detail
