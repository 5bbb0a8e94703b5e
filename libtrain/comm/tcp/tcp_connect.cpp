// How groups of TcpTransport come about: ranks tell each other where they listen, over whatever they have, and connect.

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <type_traits>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/tcp/local_address.hpp>
#include <libtrain/comm/tcp/mesh_connector.hpp>
#include <libtrain/comm/tcp/tcp_transport.hpp>

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

/// What a rank says about itself before it listens.
struct Introduction {
  std::int32_t world_size = 0;
  ShortText place{};  ///< see network_place
  GroupKey key = {};  ///< of rank 0; the others' are not used
};

constexpr const char* kIntroduction = "rank ";

Introduction introduce(int world_size) {
  return {.world_size = world_size, .place = short_text(detail::network_place())};
}

/// What it says in a group that is being split.
struct Application {
  std::int32_t color = 0;
  std::int32_t key = 0;
  std::array<unsigned char, 16> id{};
  ShortText address{};
};

/// Carries one record of every rank to all ranks, and hands them on in rank order as they come. `subject` says whose
/// they are: "rank ", "address of rank ".
using Take = std::function<void(const std::string& record)>;
using Gather = std::function<void(const std::string& subject, const std::string& record, const Take& take)>;

template <typename Record>
std::string bytes_of(const Record& record) {
  static_assert(std::is_trivially_copyable_v<Record>);
  return {reinterpret_cast<const char*>(&record), sizeof(record)};
}

template <typename Record>
std::vector<Record> gather_records(
    const Gather& gather, const std::string& subject, const Record& own,
    const std::function<void(int, const Record&)>& check = [](int, const Record&) {}) {
  std::vector<Record> records;
  gather(subject, bytes_of(own), [&](const std::string& bytes) {
    if (bytes.size() != sizeof(Record)) {
      throw EnvironmentError("The ranks run different versions of libtrain: start the same program everywhere.");
    }
    std::memcpy(&records.emplace_back(), bytes.data(), sizeof(Record));
    check(static_cast<int>(records.size()) - 1, records.back());
  });
  return records;
}

Gather gather_over(Rendezvous& rendezvous, int rank, int world_size, const Patience& patience) {
  return [&rendezvous, &patience, rank, world_size](const std::string& subject, const std::string& record,
                                                    const Take& take) {
    rendezvous.set(text(subject, rank), record, patience.deadline);
    for (int peer = 0; peer < world_size; ++peer) take(rendezvous.get(text(subject, peer), patience.deadline));
  };
}

Gather gather_over(HostTransport& base, const Patience& patience) {
  return [&base, &patience](const std::string& /*subject*/, const std::string& record, const Take& take) {
    std::string all(record.size() * static_cast<std::size_t>(base.world_size()), '\0');
    base.all_gather(record.data(), all.data(), record.size(), patience);
    for (std::size_t begin = 0; begin < all.size(); begin += record.size()) take(all.substr(begin, record.size()));
  };
}

std::unique_ptr<HostTransport> connect_mesh(const detail::MeshPlan& plan, detail::FileDescriptor listener,
                                            const Patience& patience, const std::function<void()>& look) {
  const auto host = detail::local_address(listener).with_port(0);
  auto links = detail::MeshConnector{plan, std::move(listener)}.connect(patience.deadline, look);
  std::vector<detail::MeshPeer> peers;
  for (std::size_t peer = 0; peer < links.size(); ++peer) {
    peers.push_back({.address = plan.addresses[peer],
                     .data = std::move(links[peer].data),
                     .control = detail::ControlChannel{std::move(links[peer].control)}});
  }
  return std::make_unique<TcpTransport>(plan.rank, std::move(peers), plan.key, host);
}

std::unique_ptr<HostTransport> assemble(const Gather& gather, int rank, int world_size, const TcpOptions& options,
                                        const Patience& patience) {
  auto own = introduce(world_size);
  if (rank == 0) own.key = GroupKey::random();
  // Not when all have come: there may be fewer of them than this rank waits for.
  const auto check = [world_size](int peer, const Introduction& other) {
    if (other.world_size == world_size) return;
    throw EnvironmentError(text("Rank ", peer, " was started as one of ", other.world_size,
                                " ranks, this one as one of ", world_size,
                                ": give all the same world size, and each job a rendezvous of its own."));
  };
  const auto ranks = gather_records<Introduction>(gather, kIntroduction, own, check);
  const bool all_here =
      std::all_of(ranks.begin(), ranks.end(), [&](const auto& other) { return other.place == own.place; });

  auto listener = detail::listen_at(detail::choose_local_address(options, all_here, patience.deadline));
  detail::MeshPlan plan{.rank = rank, .key = ranks.front().key};
  const auto address = short_text(detail::local_address(listener).name());
  for (const auto& other : gather_records(gather, "address of rank ", address)) {
    plan.addresses.push_back(text_of(other));
  }
  return connect_mesh(plan, std::move(listener), patience, [] {});
}

}  // namespace

std::unique_ptr<HostTransport> TcpTransport::connect(Rendezvous& rendezvous, int rank, int world_size,
                                                     const TcpOptions& options, const Patience& patience) {
  if (world_size < 1 || rank < 0 || rank >= world_size) {
    throw UsageError(text("There is no rank ", rank, " among ", world_size, " ranks."));
  }
  auto group = assemble(gather_over(rendezvous, rank, world_size, patience), rank, world_size, options, patience);
  // Whoever has connected to rank 0 has read all notes. A note stays, so that a latecomer finds its rank taken.
  if (rank == 0) rendezvous.replace(text(kIntroduction, rank), bytes_of(introduce(world_size)));
  rendezvous.leave();
  return group;
}

std::unique_ptr<HostTransport> TcpTransport::connect(HostTransport& base, const TcpOptions& options,
                                                     const Patience& patience) {
  return assemble(gather_over(base, patience), base.rank(), base.world_size(), options, patience);
}

std::unique_ptr<HostTransport> TcpTransport::split(int color, int key, const Patience& patience) {
  auto listener = detail::listen_at(host_);
  Application own{.color = color, .key = key, .address = short_text(detail::local_address(listener).name())};
  detail::fill_random(own.id.data(), own.id.size());
  const auto all = gather_records(gather_over(*this, patience), "rank ", own);

  std::vector<int> members;
  for (int peer = 0; peer < world_size(); ++peer) {
    if (all[static_cast<std::size_t>(peer)].color == color) members.push_back(peer);
  }
  const auto application = [&](int member) -> const Application& { return all[static_cast<std::size_t>(member)]; };
  std::stable_sort(members.begin(), members.end(),
                   [&](int left, int right) { return application(left).key < application(right).key; });

  detail::MeshPlan plan{.key = key_.derive(application(members.front()).id)};
  for (const int member : members) {
    if (member == rank()) plan.rank = static_cast<int>(plan.addresses.size());
    plan.addresses.push_back(text_of(application(member).address));
  }
  // A member that is lost while the part connects shows on the connections of the whole.
  return connect_mesh(plan, std::move(listener), patience, [this] { mesh_.look(); });
}

}  // namespace libtrain
