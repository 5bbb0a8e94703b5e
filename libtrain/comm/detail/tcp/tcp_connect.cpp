// Builds groups of TcpTransport: the ranks exchange the addresses at which they listen, and connect.

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <type_traits>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/tcp/local_address.hpp>
#include <libtrain/comm/detail/tcp/mesh_connector.hpp>
#include <libtrain/comm/detail/tcp/tcp_transport.hpp>

namespace libtrain {

namespace {

using detail::GroupKey;

/// Text of a fixed size, for records that are sent as they are in memory.
using ShortText = std::array<char, 160>;

ShortText short_text(const std::string& text) {
  ShortText result{};
  std::memcpy(result.data(), text.data(), std::min(text.size(), result.size() - 1));
  return result;
}

std::string text_of(const ShortText& text) {
  return {text.data(), strnlen(text.data(), text.size())};
}

/// A rank's record before it listens.
struct Introduction {
  ShortText place{};  ///< see network_place
  std::int32_t encrypts = 0;
  GroupKey key = {};  ///< that of rank 0 is used
};

/// A rank's record in a split.
struct Application {
  std::int32_t color = 0;
  std::int32_t key = 0;
  std::array<unsigned char, 16> id{};
  ShortText address{};
};

/// Sends one record of every rank to all ranks; the result is in rank order.
using Gather = std::function<std::vector<std::string>(const std::string& record)>;

template <typename Record>
std::vector<Record> gather_records(const Gather& gather, const Record& own) {
  static_assert(std::is_trivially_copyable_v<Record>);
  std::vector<Record> records;
  for (const auto& bytes : gather({reinterpret_cast<const char*>(&own), sizeof(own)})) {
    if (bytes.size() != sizeof(Record)) {
      throw EnvironmentError("The ranks run different versions of libtrain. Start the same program on all ranks.");
    }
    std::memcpy(&records.emplace_back(), bytes.data(), sizeof(Record));
  }
  return records;
}

Gather gather_over(detail::Rendezvous& rendezvous, const WaitPolicy& policy) {
  return [&](const std::string& record) { return rendezvous.all_gather(record, policy.deadline); };
}

Gather gather_over(HostTransport& base, const WaitPolicy& policy) {
  return [&](const std::string& record) {
    std::string all(record.size() * static_cast<std::size_t>(base.world_size()), '\0');
    base.all_gather(record.data(), all.data(), record.size(), policy);
    std::vector<std::string> records;
    for (std::size_t begin = 0; begin < all.size(); begin += record.size()) {
      records.push_back(all.substr(begin, record.size()));
    }
    return records;
  };
}

std::unique_ptr<HostTransport> connect_mesh(const detail::MeshPlan& plan, detail::FileDescriptor listener,
                                            const WaitPolicy& policy, const std::function<void()>& look) {
  const auto host = detail::local_address(listener).with_port(0);
  auto peers = detail::MeshConnector{plan, std::move(listener)}.connect(policy.deadline, look);
  return std::make_unique<detail::TcpTransport>(plan.rank, std::move(peers), plan.key, host, plan.encrypt);
}

// Otherwise one side would read ciphertext as gradients.
void require_equal_encryption(const std::vector<Introduction>& ranks) {
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    if (ranks[rank].encrypts == ranks.front().encrypts) continue;
    const auto on = ranks[rank].encrypts != 0 ? rank : 0;
    throw EnvironmentError(text("LIBTRAIN_ENCRYPTION is on for rank ", on, " and off for rank ", rank - on,
                                ". Set it to the same value on all ranks."),
                           ErrorScope::all_ranks);
  }
}

std::unique_ptr<HostTransport> assemble(const Gather& gather, int rank, const detail::TcpOptions& options,
                                        const WaitPolicy& policy) {
  Introduction own{.place = short_text(detail::network_place()), .encrypts = options.encrypt};
  if (rank == 0) own.key = GroupKey::random();
  const auto ranks = gather_records(gather, own);
  require_equal_encryption(ranks);
  const bool all_here =
      std::all_of(ranks.begin(), ranks.end(), [&](const auto& other) { return other.place == own.place; });

  auto listener = detail::listen_at(detail::choose_local_address(options, all_here, policy.deadline));
  detail::MeshPlan plan{.rank = rank, .key = ranks.front().key, .encrypt = options.encrypt};
  const auto address = short_text(detail::local_address(listener).name());
  for (const auto& other : gather_records(gather, address)) {
    plan.addresses.push_back(text_of(other));
  }
  return connect_mesh(plan, std::move(listener), policy, [] {});
}

}  // namespace

std::unique_ptr<HostTransport> detail::TcpTransport::connect(detail::Rendezvous& rendezvous, int rank, int world_size,
                                                             const detail::TcpOptions& options,
                                                             const WaitPolicy& policy) {
  if (world_size < 1 || rank < 0 || rank >= world_size) {
    throw UsageError(text("Rank ", rank, " of ", world_size, " does not exist. Ranks are numbered from 0."));
  }
  auto group = assemble(gather_over(rendezvous, policy), rank, options, policy);
  rendezvous.leave();
  return group;
}

std::unique_ptr<HostTransport> detail::TcpTransport::connect(HostTransport& base, const detail::TcpOptions& options,
                                                             const WaitPolicy& policy) {
  return assemble(gather_over(base, policy), base.rank(), options, policy);
}

std::unique_ptr<HostTransport> detail::TcpTransport::split(int color, int key, const WaitPolicy& policy) {
  auto listener = detail::listen_at(host_);
  Application own{.color = color, .key = key, .address = short_text(detail::local_address(listener).name())};
  detail::fill_random(own.id.data(), own.id.size());
  const auto all = gather_records(gather_over(*this, policy), own);

  std::vector<int> members;
  for (int peer = 0; peer < world_size(); ++peer) {
    if (all[static_cast<std::size_t>(peer)].color == color) members.push_back(peer);
  }
  const auto application = [&](int member) -> const Application& { return all[static_cast<std::size_t>(member)]; };
  std::stable_sort(members.begin(), members.end(),
                   [&](int left, int right) { return application(left).key < application(right).key; });

  detail::MeshPlan plan{.key = key_.derive(application(members.front()).id), .encrypt = encrypts_};
  for (const int member : members) {
    if (member == rank()) plan.rank = static_cast<int>(plan.addresses.size());
    plan.addresses.push_back(text_of(application(member).address));
  }
  // The connections of the whole group show a member that is lost while the part connects.
  return connect_mesh(plan, std::move(listener), policy, [this] { mesh_.look(); });
}

}  // namespace libtrain
