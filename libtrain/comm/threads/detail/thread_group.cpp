#include <libtrain/comm/threads/detail/thread_group.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

std::size_t checked_size(int world_size) {
  if (world_size < 1) throw UsageError(text("A group of threads needs at least one rank, not ", world_size, "."));
  return static_cast<std::size_t>(world_size);
}

}  // namespace

ThreadGroup::ThreadGroup(int world_size) : slots_(checked_size(world_size)), has_arrived_(slots_.size()) {}

void ThreadGroup::leave() noexcept {
  const std::lock_guard lock(mutex_);
  if (--inside_ == 0) changed_.notify_all();
}

void ThreadGroup::leave_as_the_last() noexcept {
  std::unique_lock lock(mutex_);
  if (--inside_ == 0) changed_.notify_all();
  changed_.wait(lock, [this] { return inside_ == 0; });
}

void ThreadGroup::wait(int rank, const Deadline& deadline, Phase phase) {
  std::unique_lock lock(mutex_);
  const auto give_up = [&] {
    // Ranks that are still in the section only copy, and leave soon.
    if (phase == Phase::closing) changed_.wait(lock, [this] { return inside_ == 0; });
    throw CommunicationError(failure_);
  };
  if (!failure_.empty()) give_up();
  const auto generation = generation_;
  has_arrived_[static_cast<std::size_t>(rank)] = true;
  if (++arrived_ == world_size()) {
    arrived_ = 0;
    has_arrived_.assign(has_arrived_.size(), false);
    ++generation_;
    if (phase == Phase::opening) inside_ = world_size();
    changed_.notify_all();
    return;
  }
  const auto over = [&] { return generation_ != generation || !failure_.empty(); };
  if (!changed_.wait_until(lock, deadline.time_point(), over)) {
    std::vector<int> missing;
    for (int peer = 0; peer < world_size(); ++peer) {
      if (!has_arrived_[static_cast<std::size_t>(peer)]) missing.push_back(peer);
    }
    fail(missing_ranks(std::move(missing)));
  }
  if (generation_ == generation) give_up();
}

void ThreadGroup::abort(const std::string& reason) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    fail(reason.empty() ? "a rank has aborted the communicator." : reason);
  } catch (...) {
    // Out of memory: the peers' deadlines still end their waits.
  }
}

void ThreadGroup::fail(const std::string& reason) {
  if (failure_.empty()) failure_ = reason;
  changed_.notify_all();
}

std::shared_ptr<ThreadGroup> ThreadGroup::subgroup(int color, int members) {
  const std::lock_guard lock(mutex_);
  auto& entry = subgroups_[color];
  if (!entry.group) entry.group = std::make_shared<ThreadGroup>(members);
  auto group = entry.group;
  if (++entry.taken == members) subgroups_.erase(color);
  return group;
}

}  // namespace libtrain::detail
