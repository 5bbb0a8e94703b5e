#include <libtrain/comm/detail/shared_memory/segment.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>

#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

constexpr std::size_t kPageBytes = 4096;
// MADV_POPULATE_WRITE and MADV_COLLAPSE, which C libraries before 2.36 and 2.37 do not define.
constexpr int kPopulateWrite = 23;
constexpr int kCollapse = 25;

[[noreturn]] void throw_error(const std::string& what, int reason) {
  throw EnvironmentError(text(what, ": ", std::strerror(reason), "."));
}

// The kernel does not refuse such a size; it kills processes later.
void check_fits_machine(std::size_t bytes) {
  const auto limit = memory_bytes();
  if (bytes < static_cast<std::size_t>(limit)) return;
  throw EnvironmentError(
      text(bytes, " bytes of shared memory are more than this machine or container has (", limit, ")."));
}

std::size_t whole_pages(std::size_t bytes) {
  const auto page = bytes < kHugePageBytes ? kPageBytes : kHugePageBytes;
  return (bytes + page - 1) / page * page;
}

FileDescriptor create_file(std::size_t requested) {
  check_fits_machine(requested);
  const auto bytes = whole_pages(requested);
  rlimit limit{};
  // Beyond this limit the kernel kills the process.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
    throw EnvironmentError(text("The limit of ", limit.rlim_cur, " bytes for files (ulimit -f) forbids ", bytes,
                                " bytes of shared memory. Raise it."));
  }
  FileDescriptor file{memfd_create("libtrain", MFD_CLOEXEC)};
  if (!file.is_open()) throw_error("Cannot create shared memory", errno);
  // memfd_create gives access to all users; until this call only /proc protects the file.
  if (fchmod(file.get(), S_IRUSR | S_IWUSR) != 0) throw_error("Cannot make shared memory private", errno);
  if (ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    throw_error(text("Cannot create ", bytes, " bytes of shared memory"), errno);
  }
  return file;
}

std::uint64_t inode_of(int file) {
  struct stat status{};
  return fstat(file, &status) == 0 ? status.st_ino : 0;
}

// Makes huge pages of a mapping whose pages have not been allocated. The kernel gives shared memory none by itself
// unless /sys/kernel/mm/transparent_hugepage/shmem_enabled says so, which it does nowhere by default, but since
// Linux 6.1 it makes them on request where there is a page.
void allocate_huge_pages_of(const Mapping& mapping) {
  auto* const begin = static_cast<std::byte*>(mapping.data());
  for (std::size_t offset = 0; offset + kHugePageBytes <= mapping.bytes(); offset += kHugePageBytes) {
    madvise(begin + offset, kPageBytes, kPopulateWrite);
  }
  madvise(begin, mapping.bytes(), kCollapse);
}

// Allocates the pages: in huge pages first, then the rest. Without memory this fails with an error; a later access
// would fail with a SIGBUS.
void allocate_pages_of(int file, const Mapping& mapping) {
  if (mapping.bytes() >= kHugePageBytes) allocate_huge_pages_of(mapping);
  madvise(mapping.data(), mapping.bytes(), kPopulateWrite);
  int result = -1;
  do {
    result = fallocate(file, 0, 0, static_cast<off_t>(mapping.bytes()));
  } while (result != 0 && errno == EINTR);
  if (result != 0) throw_error(text("Cannot get ", mapping.bytes(), " bytes of shared memory"), errno);
}

}  // namespace

Segment::Segment(std::size_t bytes, std::uint32_t number) : file_(create_file(bytes)) {
  name_ = {.inode = inode_of(file_.get()), .bytes = whole_pages(bytes), .file = file_.get(), .number = number};
  mapping_ = Mapping{file_.get(), whole_pages(bytes)};
  allocate_pages_of(file_.get(), mapping_);
}

void Segment::discard() noexcept {
  // If this fails, the pages stay allocated until the peers unmap them.
  [[maybe_unused]] const int result = ftruncate(file_.get(), 0);
}

Mapping map_segment(pid_t process, const SegmentName& name) {
  const auto path = text("/proc/", process, "/fd/", name.file);
  const FileDescriptor file{open(path.c_str(), O_RDWR | O_CLOEXEC)};
  if (!file.is_open()) throw_error(text("Cannot open the shared memory ", path, " of a peer"), errno);
  struct stat status{};
  if (fstat(file.get(), &status) != 0) throw_error(text("Cannot examine ", path), errno);
  if (status.st_ino != name.inode || static_cast<std::uint64_t>(status.st_size) != name.bytes) {
    throw EnvironmentError(text(path, " is not the shared memory of the peer: the ranks are in different PID ",
                                "namespaces. Run the ranks of a host in one PID namespace."));
  }
  return Mapping{file.get(), name.bytes};
}

}  // namespace libtrain::detail
