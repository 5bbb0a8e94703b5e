#include <libtrain/base/detail/heap.hpp>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <mutex>

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <libtrain/base/detail/machine.hpp>

namespace libtrain::detail {

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LIBTRAIN_OTHER_MALLOC
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define LIBTRAIN_OTHER_MALLOC
#endif
#endif

#if defined(__GLIBC__) && !defined(LIBTRAIN_OTHER_MALLOC)

constexpr std::uintptr_t kHugePage = 2 << 20;
constexpr std::int64_t kMaxReserved = std::int64_t{64} << 30;
constexpr int kDefaultMaxMappings = 65536;

bool is_configured_by_user() {
  for (const char* name : {"GLIBC_TUNABLES", "MALLOC_ARENA_MAX", "MALLOC_CHECK_", "MALLOC_MMAP_MAX_",
                           "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_TRIM_THRESHOLD_", "LD_PRELOAD"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

// Whether the kernel charges reserved memory before it is used (strict overcommit).
bool has_strict_accounting() {
  std::ifstream file("/proc/sys/vm/overcommit_memory");
  int mode = 0;
  return !(file >> mode) || mode == 2;
}

// The heap's part of the address space grows once for all, as one mapping: those that it grows by later would not be
// in huge pages.
void reserve_huge_pages(std::size_t bytes) {
  mallopt(M_MMAP_MAX, 0);  // the block comes from the heap itself
  void* const block = std::malloc(bytes);
  mallopt(M_MMAP_MAX, kDefaultMaxMappings);
  if (block == nullptr) return;
  const auto begin = (reinterpret_cast<std::uintptr_t>(block) + kHugePage - 1) / kHugePage * kHugePage;
  const auto end = (reinterpret_cast<std::uintptr_t>(block) + bytes) / kHugePage * kHugePage;
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  std::free(block);
}

void keep_heap_once() {
  if (is_configured_by_user() || gettid() != getpid()) return;
  mallopt(M_TRIM_THRESHOLD, -1);  // never
  mallopt(M_MMAP_THRESHOLD, INT_MAX);
  if (!has_strict_accounting())
    reserve_huge_pages(static_cast<std::size_t>(std::min(memory_bytes() / 2, kMaxReserved)));
}

#else

void keep_heap_once() {}

#endif

}  // namespace

void keep_heap() {
  static std::once_flag once;
  std::call_once(once, keep_heap_once);
}

}  // namespace libtrain::detail
