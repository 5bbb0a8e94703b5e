#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace libtrain::bench {

/// What an all-reduce inside one host cannot beat: the threads of one process, with nobody to wait for but each other,
/// add a number of float32 buffers of their own into all of them. Huge pages where the kernel grants them.
///
/// Each thread has a core of its own where there are enough, and sleeps between calls that are more than a moment
/// apart. One thread at a time may call the methods.
class MemoryFloor {
 public:
  MemoryFloor(int buffers, std::size_t count, int threads);
  ~MemoryFloor();

  MemoryFloor(const MemoryFloor&) = delete;  // the threads refer to this
  MemoryFloor& operator=(const MemoryFloor&) = delete;

  void add();

  /// Every buffer becomes zeros.
  void clear();

  /// The elements, over all buffers, that one addition of known values gets wrong.
  std::int64_t count_wrong();

 private:
  using Job = std::function<void(std::size_t first, std::size_t last)>;

  void run(Job job);
  void run_slice(std::size_t index);
  void work(std::size_t index);

  std::vector<std::unique_ptr<float, void (*)(void*)>> buffers_;
  std::size_t count_;
  Job job_;
  int caller_core_ = 0;
  std::atomic<std::uint32_t> round_ = 0;
  std::atomic<std::uint32_t> busy_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;  // beside the caller's own
};

}  // namespace libtrain::bench
