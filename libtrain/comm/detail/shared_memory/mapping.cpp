#include <libtrain/comm/detail/shared_memory/mapping.hpp>

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

// Reserves address space that contains `bytes` bytes from a multiple of kHugePageBytes on.
std::byte* reserve(std::size_t bytes) {
  void* address = mmap(nullptr, bytes + kHugePageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return address == MAP_FAILED ? nullptr : static_cast<std::byte*>(address);
}

std::byte* map_aligned(int file, std::size_t bytes) {
  auto* reserved = reserve(bytes);
  if (reserved == nullptr) return nullptr;
  const auto past = reinterpret_cast<std::uintptr_t>(reserved) % kHugePageBytes;
  const auto before = past == 0 ? 0 : kHugePageBytes - past;
  auto* begin = reserved + before;
  if (mmap(begin, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    const int reason = errno;
    munmap(reserved, bytes + kHugePageBytes);
    errno = reason;
    return nullptr;
  }
  if (before > 0) munmap(reserved, before);
  munmap(begin + bytes, kHugePageBytes - before);
  madvise(begin, bytes, MADV_HUGEPAGE);
  return begin;
}

std::byte* map_anywhere(int file, std::size_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return address == MAP_FAILED ? nullptr : static_cast<std::byte*>(address);
}

}  // namespace

Mapping::Mapping(int file, std::size_t bytes)
    : data_(bytes < kHugePageBytes ? map_anywhere(file, bytes) : map_aligned(file, bytes)), bytes_(bytes) {
  if (data_ == nullptr) {
    throw EnvironmentError(text("Cannot map ", bytes, " bytes of shared memory: ", std::strerror(errno), "."));
  }
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace libtrain::detail
