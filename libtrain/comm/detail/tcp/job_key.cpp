#include <libtrain/comm/detail/tcp/job_key.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include <libtrain/base/detail/digits.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/file_descriptor.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

constexpr std::size_t kMinSecretLength = 16;
constexpr std::size_t kMaxSecretLength = 4096;

// Every value that is derived from a secret has its own label, so that none can be computed from another.
Digest derive(const Digest& secret, const std::string& what) {
  return authenticate(secret, "libtrain " + what);
}

GroupKey key_of(const Digest& base, const std::string& job) {
  GroupKey key;
  const auto name = derive({}, "name of job " + job);
  std::copy_n(name.begin(), key.id.size(), key.id.begin());
  key.secret = derive(base, "secret of job " + job);
  return key;
}

Digest base_of(const std::string& secret, const std::string& source) {
  if (secret.size() < kMinSecretLength) {
    throw EnvironmentError(text(source, " has only ", secret.size(), " characters, which can be guessed. Use at least ",
                                kMinSecretLength, " characters, such as the output of `openssl rand -hex 32`."));
  }
  return derive({}, "secret " + secret);
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw EnvironmentError(text("The job secret at '", path, "' ", why));
}

// A file that an administrator gives this user, such as a Kubernetes secret, belongs to root.
void require_private(const std::string& path, const struct stat& status, mode_t others = 077) {
  if (status.st_uid != geteuid() && status.st_uid != 0) {
    refuse(path, text("belongs to user ", status.st_uid, ", but this process to user ", geteuid(),
                      ". Set LIBTRAIN_SECRET_FILE to a file of your own."));
  }
  if ((status.st_mode & others) != 0) {
    refuse(path, "is open to other users. Make it private with chmod go-rwx (Kubernetes: defaultMode: 0400).");
  }
}

std::string read_all(const FileDescriptor& file, const std::string& path) {
  std::array<char, kMaxSecretLength> buffer{};
  const auto got = read(file.get(), buffer.data(), buffer.size());
  if (got < 0) refuse(path, text("cannot be read (", std::strerror(errno), ")."));
  std::string content(buffer.data(), static_cast<std::size_t>(got));
  while (content.ends_with('\n') || content.ends_with('\r')) content.pop_back();
  return content;
}

// std::nullopt if there is no such file.
std::optional<std::string> read_secret(const std::string& path, int more_flags) {
  const FileDescriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | more_flags)};
  if (!file.is_open() && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  if (!file.is_open()) refuse(path, text("cannot be opened (", std::strerror(errno), ")."));
  struct stat status{};
  if (fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) refuse(path, "is not a regular file.");
  // Root may give a file that no job has made to a group, as with Kubernetes' fsGroup.
  const bool is_given_by_root = status.st_uid == 0 && (more_flags & O_NOFOLLOW) == 0;
  require_private(path, status, is_given_by_root ? 037 : 077);
  return read_all(file, path);
}

std::string random_secret() {
  Digest bytes;
  fill_random(bytes.data(), bytes.size());
  return hexadecimal(bytes);
}

// Whole or not at all, and the same for all ranks that do this at once. False, and errno, where it cannot be.
bool make_secret(const std::string& path) {
  const auto partial = text(path, ".", getpid(), ".", random_secret().substr(0, 16));
  const FileDescriptor file{open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)};
  if (!file.is_open()) return false;
  const auto content = random_secret() + "\n";
  const bool written = write_all(file.get(), content) == content.size() && fsync(file.get()) == 0;
  const bool linked = written && (link(partial.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const int error = errno;
  unlink(partial.c_str());
  errno = error;
  return linked;
}

bool make_folder(const std::string& path) {
  return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST;
}

// The user's own secret in `folder`, which is created if it does not exist; std::nullopt if neither is possible.
std::optional<std::string> own_secret(const std::string& folder) {
  const auto path = folder + "/secret";
  // In containers, HOME is often that of another user.
  if (access(folder.c_str(), X_OK) != 0 && errno == EACCES) return std::nullopt;
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (const auto secret = read_secret(path, O_NOFOLLOW)) return secret;
    if (!make_folder(folder) || !make_secret(path)) return std::nullopt;
  }
  return std::nullopt;
}

bool lies_on_network(const std::string& path) {
  struct statfs status{};
  return statfs(path.c_str(), &status) == 0 && is_network_file_system(static_cast<unsigned long>(status.f_type));
}

// ~/.config is created if it does not exist; its parent is not.
std::optional<std::string> config_folder(const Environment& environment) {
  auto folder = environment.get("XDG_CONFIG_HOME");
  if (const auto home = environment.get("HOME"); !folder && home) folder = *home + "/.config";
  if (!folder || !folder->starts_with('/')) return std::nullopt;
  make_folder(*folder);
  return *folder + "/libtrain";
}

// Other users can write to /dev/shm, too: a folder that they have made is refused.
std::string memory_folder() {
  auto folder = text("/dev/shm/libtrain-", geteuid());
  make_folder(folder);
  struct stat status{};
  if (lstat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    refuse(folder, "cannot be created. Set LIBTRAIN_SECRET_FILE to a file, or HOME to a folder that can be written.");
  }
  require_private(folder, status);
  return folder;
}

JobKey key_from_file(const std::string& folder, const std::string& secret, const std::string& job) {
  const auto path = folder + "/secret";
  return {.key = key_of(base_of(secret, path), job), .source = path, .is_of_all_hosts = lies_on_network(path)};
}

}  // namespace

std::uint64_t JobKey::fingerprint() const {
  const auto digest = derive(key.secret, "fingerprint");
  std::uint64_t number = 0;
  std::memcpy(&number, digest.data(), sizeof(number));
  return number;
}

JobKey find_job_key(const Environment& environment, const std::string& job) {
  if (const auto secret = environment.get("LIBTRAIN_SECRET")) {
    const std::string source = "LIBTRAIN_SECRET";
    return {.key = key_of(base_of(*secret, source), job), .source = source, .is_of_all_hosts = true};
  }
  if (const auto path = environment.get("LIBTRAIN_SECRET_FILE")) {
    const auto secret = read_secret(*path, 0);
    if (!secret) refuse(*path, "does not exist. Set LIBTRAIN_SECRET_FILE to an existing file.");
    return {.key = key_of(base_of(*secret, *path), job), .source = *path, .is_of_all_hosts = true};
  }
  std::string warning;
  if (const auto folder = config_folder(environment)) try {
      if (const auto secret = own_secret(*folder)) return key_from_file(*folder, *secret, job);
    } catch (const EnvironmentError& error) {
      // Other users may have read it, or it belongs to them.
      warning = text(error.what(),
                     " Until it is deleted, jobs use a secret in /dev/shm, which ranks on other hosts cannot read.");
    }
  const auto folder = memory_folder();
  const auto secret = own_secret(folder);
  if (!secret) refuse(folder + "/secret", text("cannot be created (", std::strerror(errno), ")."));
  auto key = key_from_file(folder, *secret, job);
  key.warning = std::move(warning);
  return key;
}

Command own_command() {
  std::ifstream file{"/proc/self/cmdline", std::ios::binary};
  return parse_command({std::istreambuf_iterator<char>{file}, {}});
}

Command parse_command(const std::string& arguments) {
  std::istringstream stream{arguments};
  std::string program;
  std::getline(stream, program, '\0');
  std::string common;
  for (std::string argument; std::getline(stream, argument, '\0');) {
    const auto name = argument.substr(0, argument.find('='));
    if (name == "--rank" || name == "--local-rank") {
      if (name == argument) std::getline(stream, argument, '\0');
      continue;
    }
    common += argument + '\0';
  }
  Command command{.program = program.substr(program.rfind('/') + 1)};
  const auto digest = derive({}, "command " + common);
  std::memcpy(&command.arguments, digest.data(), sizeof(command.arguments));
  command.arguments |= 1;
  return command;
}

GroupKey open_key(const std::string& job) {
  return key_of({}, job);
}

bool is_network_file_system(unsigned long type) {
  // NFS, SMB (three generations), Lustre, Spectrum Scale, Ceph, AFS, BeeGFS, PanFS, OCFS2, GFS2
  constexpr std::array kTypes{0x6969ul,     0x517Bul,     0xFE534D42ul, 0xFF534D42ul, 0x0BD00BD0ul, 0x47504653ul,
                              0x00C36400ul, 0x5346414Ful, 0x19830326ul, 0xAAD7AAEAul, 0x7461636Ful, 0x01161970ul};
  return std::find(kTypes.begin(), kTypes.end(), type & 0xFFFFFFFFul) != kTypes.end();
}

}  // namespace libtrain::detail
