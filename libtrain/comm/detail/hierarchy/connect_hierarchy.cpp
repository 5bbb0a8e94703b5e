#include <libtrain/comm/detail/hierarchy/hierarchical_transport.hpp>

#include <array>
#include <cstring>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/delayed_abort.hpp>
#include <libtrain/comm/detail/shared_memory/shared_memory_transport.hpp>

namespace libtrain {

namespace {

constexpr std::size_t kIdentityLength = 512;

// The host of every rank; empty if any rank does not share memory.
std::vector<std::string> gather_hosts(HostTransport& world, const detail::HierarchyOptions& options,
                                      const WaitPolicy& policy) {
  std::array<char, kIdentityLength> mine{};
  if (options.share_memory) {
    const auto host = options.host.empty() ? detail::own_host().to_text() : options.host;
    std::strncpy(mine.data(), host.c_str(), mine.size() - 1);
  }
  detail::barrier(world, policy);
  const auto ranks = static_cast<std::size_t>(world.world_size());
  std::vector<char> all(ranks * kIdentityLength);
  world.all_gather(mine.data(), all.data(), kIdentityLength, policy);
  std::vector<std::string> hosts;
  std::vector<int> opted_out;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    hosts.emplace_back(all.data() + rank * kIdentityLength);
    if (hosts.back().empty()) opted_out.push_back(static_cast<int>(rank));
  }
  if (opted_out.empty()) {
    const auto reason = detail::why_apart(hosts);
    if (world.rank() == 0 && !reason.empty()) {
      log_warning(text(reason, " They use ", world.name(), ", which is slower."));
    }
    return hosts;
  }
  if (world.rank() == 0 && opted_out.size() < ranks) {
    log_warning(text("LIBTRAIN_SHARED_MEMORY is off on ", detail::ranks_in_words(std::move(opted_out)),
                     " only, so no rank uses shared memory. Set it to the same value on all ranks."));
  }
  return {};
}

// Connects the ranks with the same local rank on all hosts; only the first ranks if the hosts have different sizes.
std::unique_ptr<HostTransport> connect_across(HostTransport& world, const detail::HostLayout& layout,
                                              const WaitPolicy& policy) {
  const int local_rank = layout.local_rank_of(world.rank());
  const int host = layout.host_of(world.rank());
  detail::barrier(world, policy);
  auto part = world.split(layout.is_even() || local_rank == 0 ? local_rank : 1, host, policy);
  if (!layout.is_even() && local_rank != 0) return nullptr;
  std::vector<int> names;
  for (int peer = 0; peer < layout.host_count(); ++peer) {
    names.push_back(world.name_of(layout.members(peer)[static_cast<std::size_t>(local_rank)]));
  }
  part->name_ranks(std::move(names));
  return part;
}

// Connects the ranks of this host through shared memory; returns null on all ranks if it fails on any host.
std::unique_ptr<detail::SharedMemoryTransport> connect_local(HostTransport& world, const detail::HostLayout& layout,
                                                             const WaitPolicy& policy) {
  const auto& members = layout.members(layout.host_of(world.rank()));
  std::vector<int> names;
  for (const int member : members) names.push_back(world.name_of(member));
  std::unique_ptr<detail::SharedMemoryTransport> local;
  std::string problem;
  detail::barrier(world, policy);
  {
    const auto base = world.split(layout.host_of(world.rank()), world.rank(), policy);
    base->name_ranks(names);
    try {
      local = detail::SharedMemoryTransport::connect(*base, policy);
    } catch (const EnvironmentError& error) {
      problem = error.what();
    }
  }
  detail::barrier(world, policy);
  const char mine = problem.empty() ? 0 : 1;
  std::vector<char> all(static_cast<std::size_t>(world.world_size()));
  world.all_gather(&mine, all.data(), 1, policy);
  if (std::find(all.begin(), all.end(), 1) != all.end()) {
    if (!problem.empty() && world.rank() == members.front()) {
      log_warning(
          text("Ranks of one host cannot share memory and use ", world.name(), " instead, which is slower: ", problem));
    }
    return nullptr;
  }
  local->name_ranks(std::move(names));
  return local;
}

}  // namespace

std::unique_ptr<HostTransport> detail::HierarchicalTransport::connect(std::unique_ptr<HostTransport> world,
                                                                      const detail::HierarchyOptions& options,
                                                                      const WaitPolicy& policy) {
  if (world->world_size() == 1) return world;
  try {
    return connect_parts(world, options, policy);
  } catch (...) {
    // This rank alone may have failed, and its peers would report that it has left.
    if (world) {
      abort_after_report([world = std::shared_ptr<HostTransport>(std::move(world))] {
        world->abort("it could not connect to the other ranks. See the log of that rank.");
      });
    }
    throw;
  }
}

std::unique_ptr<HostTransport> detail::HierarchicalTransport::connect_parts(std::unique_ptr<HostTransport>& world,
                                                                            const detail::HierarchyOptions& options,
                                                                            const WaitPolicy& policy) {
  const auto hosts = gather_hosts(*world, options, policy);
  if (hosts.empty()) return std::move(world);
  detail::HostLayout layout{hosts};
  if (layout.host_count() == world->world_size()) return std::move(world);
  auto local = connect_local(*world, layout, policy);
  if (local == nullptr) return std::move(world);
  if (layout.host_count() == 1) {
    local->keep_base(std::move(world));
    return local;
  }
  auto across = connect_across(*world, layout, policy);
  return std::unique_ptr<HostTransport>(new detail::HierarchicalTransport(
      std::move(world), std::move(local), std::move(across), std::move(layout), options));
}

}  // namespace libtrain
