#include <tests/data/formats/counted_allocation.hpp>

#include <malloc.h>

#include <cstdlib>
#include <new>

namespace {

// Trivial: operator new runs before any constructor does.
thread_local bool is_counting = false;
thread_local std::ptrdiff_t in_use = 0;
thread_local std::ptrdiff_t peak = 0;

void* allocate(std::size_t bytes) noexcept {
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (is_counting && memory != nullptr) {
    in_use += static_cast<std::ptrdiff_t>(malloc_usable_size(memory));
    if (in_use > peak) peak = in_use;
  }
  return memory;
}

void* allocate_or_throw(std::size_t bytes) {
  void* const memory = allocate(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void release(void* memory) noexcept {
  if (is_counting && memory != nullptr) in_use -= static_cast<std::ptrdiff_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

// All forms but the aligned ones, so that a sanitizer never sees one of its own paired with one of these.
void* operator new(std::size_t bytes) {
  return allocate_or_throw(bytes);
}
void* operator new[](std::size_t bytes) {
  return allocate_or_throw(bytes);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes);
}
void operator delete(void* memory) noexcept {
  release(memory);
}
void operator delete[](void* memory) noexcept {
  release(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  release(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  release(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  release(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  release(memory);
}

namespace libtrain::data {

AllocationPeak::AllocationPeak() {
  in_use = 0;
  peak = 0;
  is_counting = true;
}

AllocationPeak::~AllocationPeak() {
  is_counting = false;
}

std::size_t AllocationPeak::bytes() const {
  return static_cast<std::size_t>(peak);
}

}  // namespace libtrain::data
