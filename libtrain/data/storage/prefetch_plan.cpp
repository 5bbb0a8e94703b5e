#include <libtrain/data/storage/prefetch_plan.hpp>

#include <algorithm>
#include <cstddef>
#include <queue>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

namespace {

void require_known(const std::vector<std::uint32_t>& files, std::size_t count, const char* what) {
  for (const auto file : files) {
    if (file >= count) {
      throw UsageError(
          text("A prefetch plan's ", what, " name file ", file, ", but only ", count, " sizes are given."));
    }
  }
}

/// A cache as it would be, step by step, if each file were fetched when it is read.
class Simulation {
 public:
  explicit Simulation(const PrefetchTask& task) : task_(task), files_(task.file_bytes.size()) {}

  void put(std::uint32_t file, std::uint64_t next_use) {
    if (files_[file].is_local) return;
    files_[file].is_local = true;
    used_ += task_.file_bytes[file];
    set_next_use(file, next_use);
  }

  bool is_local(std::uint32_t file) const { return files_[file].is_local; }

  /// Evicts until `file` fits. Returns the position from which on all that went is used no more before it comes back.
  std::uint64_t make_room_for(std::uint32_t file) {
    std::uint64_t free_from = 0;
    const std::uint64_t limit = task_.capacity_bytes - task_.file_bytes[file];
    while (used_ > limit && !by_next_use_.empty()) {
      const auto [next_use, victim] = by_next_use_.top();
      by_next_use_.pop();
      if (!files_[victim].is_local || files_[victim].next_use != next_use) continue;  // was used or evicted since
      files_[victim].is_local = false;
      used_ -= task_.file_bytes[victim];
      free_from = std::max(free_from, files_[victim].free_from);
    }
    return free_from;
  }

  void use(std::uint32_t file, std::uint64_t position, std::uint64_t next_use) {
    files_[file].free_from = position + 1;
    if (files_[file].is_local) set_next_use(file, next_use);
  }

 private:
  struct State {
    bool is_local = false;
    std::uint64_t next_use = kNeverUsed;
    std::uint64_t free_from = 0;
  };

  void set_next_use(std::uint32_t file, std::uint64_t next_use) {
    files_[file].next_use = next_use;
    by_next_use_.emplace(next_use, file);
  }

  const PrefetchTask& task_;
  std::vector<State> files_;
  std::uint64_t used_ = 0;
  std::priority_queue<std::pair<std::uint64_t, std::uint32_t>> by_next_use_;  // the furthest on top; some are outdated
};

}  // namespace

PrefetchPlan::PrefetchPlan(const PrefetchTask& task)
    : first_uses_(task.file_bytes.size(), kNeverUsed), next_uses_(task.uses.size(), kNeverUsed) {
  require_known(task.uses, task.file_bytes.size(), "positions");
  require_known(task.local, task.file_bytes.size(), "local files");
  for (std::size_t position = task.uses.size(); position-- > 0;) {
    next_uses_[position] = std::exchange(first_uses_[task.uses[position]], position);
  }

  Simulation cache(task);
  for (const auto file : task.local) cache.put(file, first_uses_[file]);
  std::uint64_t start_at = 0;
  for (std::size_t position = 0; position < task.uses.size(); ++position) {
    const auto file = task.uses[position];
    if (!cache.is_local(file) && task.file_bytes[file] <= task.capacity_bytes) {
      start_at = std::max(start_at, cache.make_room_for(file));
      cache.put(file, position);
      fetches_.push_back({.file = file, .needed_at = position, .start_at = start_at});
    }
    cache.use(file, position, next_uses_[position]);
  }
}

}  // namespace libtrain::data
