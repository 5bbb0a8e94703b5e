#include <libtrain/comm/detail/shared_memory/group.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <optional>
#include <random>
#include <type_traits>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

std::uint64_t random_number() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

std::vector<pid_t> processes_of(const auto& members) {
  std::vector<pid_t> processes;
  for (const auto& member : members) processes.push_back(member.process);
  return processes;
}

SharedState& state_in(const Mapping& mapping, std::uint64_t nonce) {
  auto& state = *std::launder(reinterpret_cast<SharedState*>(mapping.data()));
  if (state.nonce != nonce) {
    throw EnvironmentError(
        "The shared memory opened through a peer's process does not belong to that peer. Run the ranks of a host in "
        "one PID namespace, or set LIBTRAIN_SHARED_MEMORY=off.");
  }
  return state;
}

}  // namespace

struct SharedMemoryGroup::Member {
  pid_t process = 0;
  SegmentName state;  ///< of the group's first rank
  std::uint64_t nonce = 0;
  SegmentName staging;
  std::array<char, 256> problem{};  ///< empty if the rank has no problem

  void report(const std::string& text) {
    std::memcpy(problem.data(), text.data(), std::min(text.size(), problem.size() - 1));
  }
};

std::vector<SharedMemoryGroup::Member> SharedMemoryGroup::exchange(HostTransport& base, const Member& mine,
                                                                   const WaitPolicy& policy) {
  static_assert(std::is_trivially_copyable_v<Member>);
  std::vector<Member> all(static_cast<std::size_t>(base.world_size()));
  detail::barrier(base, policy);
  base.all_gather(&mine, all.data(), sizeof(Member), policy);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::string problem = all[rank].problem.data();
    if (!problem.empty()) {
      throw EnvironmentError(text("The ranks of this host cannot share memory, because of rank ",
                                  base.name_of(static_cast<int>(rank)), ": ", problem),
                             ErrorScope::all_ranks);
    }
  }
  return all;
}

std::unique_ptr<SharedMemoryGroup> SharedMemoryGroup::connect(HostTransport& base, const std::vector<int>& members,
                                                              const WaitPolicy& policy) {
  const auto rank = static_cast<int>(std::ranges::find(members, base.rank()) - members.begin());
  Member mine;
  mine.process = getpid();
  mine.nonce = random_number();
  std::optional<Segment> staging;
  std::optional<Segment> state;
  try {
    if (members.size() > kMaxRanks) {
      throw EnvironmentError(text("Shared memory connects at most ", kMaxRanks, " ranks, not ", members.size(), "."));
    }
    staging.emplace(kStagingBytes, 0);
    mine.staging = staging->name();
    if (rank == 0) {
      state.emplace(sizeof(SharedState), 0);
      (new (state->data()) SharedState)->nonce = mine.nonce;
      mine.state = state->name();
    }
  } catch (const std::exception& error) {
    mine.report(error.what());
  }
  const auto all = exchange(base, mine, policy);

  std::unique_ptr<SharedMemoryGroup> group;
  try {
    std::vector<Member> group_members;
    for (const int member : members) group_members.push_back(all[static_cast<std::size_t>(member)]);
    group.reset(new SharedMemoryGroup(group_members, rank));
  } catch (const std::exception& error) {
    mine.report(error.what());
  }
  // Files may be closed only after all ranks have mapped them, even if this rank has failed.
  exchange(base, mine, policy);
  return group;
}

SharedMemoryGroup::SharedMemoryGroup(std::span<const Member> members, int rank)
    : rank_(rank),
      world_size_(static_cast<int>(members.size())),
      processes_(processes_of(members)),
      state_(map_segment(members[0].process, members[0].state)),
      barrier_(state_in(state_, members[0].nonce), processes_, rank, world_size_),
      segments_(processes_, world_size_) {
  for (const auto& member : members) staging_.push_back(map_segment(member.process, member.staging));
}

SharedMemoryGroup::~SharedMemoryGroup() {
  barrier_.close();
}

std::byte* SharedMemoryGroup::address(int rank, const Location& location) {
  try {
    return segments_.address(rank, location);
  } catch (const std::exception& error) {
    barrier_.give_up(error.what());
  }
}

}  // namespace libtrain::detail
