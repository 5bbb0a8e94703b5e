// Preloaded into a program (LD_PRELOAD), fails or kills it at the k-th call that changes files below one folder:
//
//   FAULTY_DISK_ROOT    the folder, as /proc/self/fd shows it
//   FAULTY_DISK_AT      k, from 1 on; 0 only counts
//   FAULTY_DISK_ACTION  EIO, ENOSPC  the call fails and does nothing
//                       dead         it and all later calls fail with EIO
//                       short        a write writes half of its bytes; other calls succeed
//                       torn         a write writes half of its bytes, and the process is killed; others as kill
//                       kill         the process is killed before the call
//                       wait         the call creates the file FAULTY_DISK_GATE.reached, and begins when a file
//                                    FAULTY_DISK_GATE.open exists, or after a minute
//   FAULTY_DISK_LOG     a file that gets one line a call: its name, result, and paths
//
// Reading a file and closing one are not counted.

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string path_of(int descriptor) {
  char path[PATH_MAX];
  const auto link = "/proc/self/fd/" + std::to_string(descriptor);
  const auto length = readlink(link.c_str(), path, sizeof path);
  return length < 0 ? "" : std::string(path, static_cast<std::size_t>(length));
}

std::string path_at(int folder, const char* name) {
  if (name[0] == '/') return name;
  return (folder == AT_FDCWD ? std::string{} : path_of(folder) + "/") + name;
}

bool is_below_root(const std::string& path) {
  static const auto root = variable("FAULTY_DISK_ROOT");
  return !root.empty() && path.compare(0, root.size(), root) == 0;
}

// What it creates is not below the root.
void wait_at_gate() {
  const auto gate = variable("FAULTY_DISK_GATE");
  syscall(SYS_close, syscall(SYS_openat, AT_FDCWD, (gate + ".reached").c_str(), O_WRONLY | O_CREAT, 0666));
  for (int waited_ms = 0; waited_ms < 60'000 && access((gate + ".open").c_str(), F_OK) != 0; ++waited_ms) usleep(1000);
}

enum class Fault { none, fails, halves, tears };

Fault fault_of_next_call() {
  static std::atomic<long> calls = 0;
  static const long at = std::atol(variable("FAULTY_DISK_AT").c_str());
  static const auto action = variable("FAULTY_DISK_ACTION");
  const long call = ++calls;
  if (action == "dead" && at > 0 && call >= at) {
    errno = EIO;
    return Fault::fails;
  }
  if (call != at) return Fault::none;
  if (action == "wait") {
    wait_at_gate();
    return Fault::none;
  }
  if (action == "short") return Fault::halves;
  if (action == "torn") return Fault::tears;
  if (action == "kill") kill(getpid(), SIGKILL);
  errno = action == "ENOSPC" ? ENOSPC : EIO;
  return Fault::fails;
}

void log_call(const std::string& call, long result, const std::string& path) {
  static const auto log = variable("FAULTY_DISK_LOG");
  if (log.empty()) return;
  const int error = errno;
  const auto line = call + " " + std::to_string(result) + " " + path + "\n";
  // System calls, which do not come back here.
  const auto file = syscall(SYS_openat, AT_FDCWD, log.c_str(), O_WRONLY | O_APPEND | O_CREAT, 0666);
  syscall(SYS_write, file, line.data(), line.size());
  syscall(SYS_close, file);
  errno = error;
}

// A call on `path`, which `proceed` makes.
template <typename Proceed>
auto intercept(const char* call, const std::string& path, const Proceed& proceed) -> decltype(proceed()) {
  if (!is_below_root(path)) return proceed();
  const auto fault = fault_of_next_call();
  if (fault == Fault::tears) kill(getpid(), SIGKILL);
  const auto result = fault == Fault::fails ? decltype(proceed()){-1} : proceed();
  log_call(call, static_cast<long>(result), path);
  return result;
}

bool changes_files(int flags) {
  return (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) != 0;
}

int open_with_mode(int folder, const char* name, int flags, mode_t mode) {
  static auto* const real = next<int(int, const char*, int, ...)>("openat");
  if (!changes_files(flags)) return real(folder, name, flags, mode);
  return intercept("open", path_at(folder, name), [&] { return real(folder, name, flags, mode); });
}

}  // namespace

extern "C" {

ssize_t write(int descriptor, const void* bytes, size_t count) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  const auto path = path_of(descriptor);
  if (!is_below_root(path)) return real(descriptor, bytes, count);
  const auto fault = fault_of_next_call();
  const bool is_half = fault == Fault::halves || fault == Fault::tears;
  const auto result = fault == Fault::fails ? -1 : real(descriptor, bytes, is_half ? (count + 1) / 2 : count);
  if (fault == Fault::tears) kill(getpid(), SIGKILL);
  log_call("write", result, path);
  return result;
}

int fsync(int descriptor) {
  static auto* const real = next<int(int)>("fsync");
  return intercept("fsync", path_of(descriptor), [&] { return real(descriptor); });
}

int ftruncate(int descriptor, off_t length) {
  static auto* const real = next<int(int, off_t)>("ftruncate");
  return intercept("ftruncate", path_of(descriptor), [&] { return real(descriptor, length); });
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) {
  static auto* const real = next<int(int, const char*, int, const char*)>("renameat");
  const auto path = path_at(from_folder, from);
  return intercept("rename", path + " " + path_at(to_folder, to),
                   [&] { return real(from_folder, from, to_folder, to); });
}

int rename(const char* from, const char* to) {
  return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int mkdirat(int folder, const char* name, mode_t mode) {
  static auto* const real = next<int(int, const char*, mode_t)>("mkdirat");
  return intercept("mkdir", path_at(folder, name), [&] { return real(folder, name, mode); });
}

int mkdir(const char* name, mode_t mode) {
  return mkdirat(AT_FDCWD, name, mode);
}

int unlinkat(int folder, const char* name, int flags) {
  static auto* const real = next<int(int, const char*, int)>("unlinkat");
  return intercept("unlink", path_at(folder, name), [&] { return real(folder, name, flags); });
}

int openat(int folder, const char* name, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const auto mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return open_with_mode(folder, name, flags, mode);
}

int open(const char* name, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const auto mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return open_with_mode(AT_FDCWD, name, flags, mode);
}

}  // extern "C"
