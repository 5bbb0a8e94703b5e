#include <bench/memory_floor.hpp>

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/detail/vector_clones.hpp>

namespace libtrain::bench {

namespace {

constexpr std::size_t kHugePageBytes = 2 << 20;
constexpr std::size_t kBlock = 4096;    // elements: what several buffers share is still in the first cache
constexpr std::size_t kCacheLine = 16;  // elements: no two threads write to the same one
constexpr double kSpin_s = 500e-6;

LIBTRAIN_VECTOR_CLONES void add_to(float* __restrict a, const float* __restrict b, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) a[i] += b[i];
}

LIBTRAIN_VECTOR_CLONES void add_into_both(float* __restrict a, float* __restrict b, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) a[i] = b[i] = a[i] + b[i];
}

std::unique_ptr<float, void (*)(void*)> make_buffer(std::size_t count) {
  const auto bytes =
      std::max<std::size_t>((count * sizeof(float) + kHugePageBytes - 1) / kHugePageBytes, 1) * kHugePageBytes;
  void* memory = std::aligned_alloc(kHugePageBytes, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  madvise(memory, bytes, MADV_HUGEPAGE);
  return {static_cast<float*>(memory), std::free};
}

// Whatever core the launcher has bound this process to. A core that the process may not use at all leaves the thread
// where it is.
void move_to_core(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  sched_setaffinity(0, sizeof set, &set);
}

}  // namespace

MemoryFloor::MemoryFloor(int buffers, std::size_t count, int threads) : count_(count) {
  for (int index = 0; index < buffers; ++index) buffers_.push_back(make_buffer(count));
  for (int index = 1; index < threads; ++index) {
    threads_.emplace_back([this, index] { work(static_cast<std::size_t>(index)); });
  }
}

MemoryFloor::~MemoryFloor() {
  stopping_ = true;
  ++round_;
  round_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void MemoryFloor::work(std::size_t index) {
  const auto cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  int core = -1;
  for (std::uint32_t seen = 0;; ++seen) {
    const Stopwatch waiting;
    while (round_.load(std::memory_order_acquire) == seen && waiting.seconds() < kSpin_s) std::this_thread::yield();
    round_.wait(seen, std::memory_order_acquire);
    if (stopping_) return;
    // The kernel likes to wake a thread where its waker runs: there the two would take turns.
    const int own_core = (caller_core_ + static_cast<int>(index)) % cores;
    if (own_core != core) move_to_core(core = own_core);
    run_slice(index);
    busy_.fetch_sub(1, std::memory_order_release);
  }
}

void MemoryFloor::run_slice(std::size_t index) {
  const auto slices = threads_.size() + 1;
  const auto length = (count_ / slices + kCacheLine) / kCacheLine * kCacheLine;
  const auto last = index + 1 == slices ? count_ : std::min(count_, (index + 1) * length);
  job_(std::min(count_, index * length), last);
}

void MemoryFloor::run(Job job) {
  job_ = std::move(job);
  caller_core_ = std::max(0, sched_getcpu());
  busy_ = static_cast<std::uint32_t>(threads_.size());
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  run_slice(0);
  while (busy_.load(std::memory_order_acquire) != 0) std::this_thread::yield();
}

void MemoryFloor::add() {
  if (buffers_.size() < 2) return;
  run([this](std::size_t first, std::size_t last) {
    for (auto begin = first; begin < last; begin += kBlock) {
      const auto length = std::min(kBlock, last - begin);
      auto* sum = buffers_.front().get() + begin;
      for (std::size_t k = 1; k + 1 < buffers_.size(); ++k) add_to(sum, buffers_[k].get() + begin, length);
      add_into_both(sum, buffers_.back().get() + begin, length);
      for (std::size_t k = 1; k + 1 < buffers_.size(); ++k) {
        std::memcpy(buffers_[k].get() + begin, sum, length * sizeof(float));
      }
    }
  });
}

void MemoryFloor::clear() {
  run([this](std::size_t first, std::size_t last) {
    for (auto& buffer : buffers_) std::fill(buffer.get() + first, buffer.get() + last, 0.0f);
  });
}

std::int64_t MemoryFloor::count_wrong() {
  const auto value = [](std::size_t buffer, std::size_t index) { return static_cast<float>((index + 3 * buffer) % 8); };
  run([&](std::size_t first, std::size_t last) {
    for (std::size_t k = 0; k < buffers_.size(); ++k) {
      for (auto i = first; i < last; ++i) buffers_[k].get()[i] = value(k, i);
    }
  });
  add();
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    float expected = 0;
    for (std::size_t k = 0; k < buffers_.size(); ++k) expected += value(k, i);
    for (const auto& buffer : buffers_) wrong += buffer.get()[i] != expected;
  }
  return wrong;
}

}  // namespace libtrain::bench
