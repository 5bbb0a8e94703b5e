#include <tools/info/connection_check.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/connect_transport.hpp>

namespace libtrain::tools {

namespace {

constexpr std::size_t kBytes = std::size_t{16} << 20;
constexpr int kRepetitions = 5;
constexpr int kRoundTrips = 100;
constexpr std::size_t kNameLength = 128;

/// Sent by each rank to the others, in its memory layout.
struct Introduction {
  std::array<char, kNameLength> host{};
  std::int32_t rank = 0;
  std::int32_t world_size = 0;
};

struct Measurement {
  double latency_s = 0;
  double there_gb_s = 0;
  double back_gb_s = 0;
};

template <typename Record>
std::vector<Record> gather(HostTransport& transport, const Record& own, const WaitPolicy& policy) {
  std::vector<Record> records(static_cast<std::size_t>(transport.world_size()));
  detail::barrier(transport, policy);
  transport.all_gather(&own, records.data(), sizeof(Record), policy);
  return records;
}

std::string own_host() {
  const auto name = Environment::of_process().get("LIBTRAIN_HOST").value_or(detail::host_name());
  return name.empty() ? "a host without a name" : name.substr(0, kNameLength - 1);
}

/// The ranks of each host, hosts in the order of their lowest ranks.
struct Host {
  std::string name;
  std::vector<int> ranks;
};

std::vector<Host> hosts_of(const std::vector<Introduction>& ranks) {
  std::vector<Host> hosts;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::string name = ranks[rank].host.data();
    auto host = std::find_if(hosts.begin(), hosts.end(), [&](const Host& one) { return one.name == name; });
    if (host == hosts.end()) host = hosts.insert(hosts.end(), Host{.name = name, .ranks = {}});
    host->ranks.push_back(static_cast<int>(rank));
  }
  return hosts;
}

void require_agreement(const Launch& launch, const std::vector<Introduction>& ranks) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& sent = ranks[rank];
    if (sent.rank == static_cast<int>(rank) && sent.world_size == static_cast<int>(ranks.size())) continue;
    throw EnvironmentError(
        text("The launch environment gives rank ", sent.rank, " of ", sent.world_size, " on ", sent.host.data(),
             ", but its peers report rank ", rank, " of ", ranks.size(), " (rendezvous over ", launch.rendezvous.value,
             "). Start the program with the mpirun of the MPI that it was built with, or set --dist-url "
             "tcp://host:port."),
        ErrorScope::all_ranks);
  }
}

// Seconds for 8 bytes from rank 0 to rank 1 and back.
double round_trip(HostTransport& pair, const WaitPolicy& policy) {
  std::uint64_t word = 0;
  const Stopwatch stopwatch;
  detail::barrier(pair, policy);
  pair.broadcast(&word, sizeof(word), 0, policy);
  detail::barrier(pair, policy);
  pair.broadcast(&word, sizeof(word), 1, policy);
  return stopwatch.seconds();
}

// GB/s from `root` to the other rank, which then answers.
double rate_from(int root, HostTransport& pair, std::vector<char>& buffer, const WaitPolicy& policy) {
  double best = std::numeric_limits<double>::infinity();
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    std::uint64_t word = 0;
    detail::barrier(pair, policy);
    const Stopwatch stopwatch;
    pair.broadcast(buffer.data(), buffer.size(), root, policy);
    detail::barrier(pair, policy);
    pair.broadcast(&word, sizeof(word), 1 - root, policy);
    best = std::min(best, stopwatch.seconds());
  }
  return static_cast<double>(buffer.size()) / best / 1e9;
}

Measurement measure_pair(HostTransport& pair, const WaitPolicy& policy) {
  std::vector<double> times;
  for (int trip = 0; trip < kRoundTrips; ++trip) times.push_back(round_trip(pair, policy));
  std::nth_element(times.begin(), times.begin() + kRoundTrips / 2, times.end());
  std::vector<char> buffer(kBytes);
  return {.latency_s = times[kRoundTrips / 2] / 2,
          .there_gb_s = rate_from(0, pair, buffer, policy),
          .back_gb_s = rate_from(1, pair, buffer, policy)};
}

double all_reduce_time(HostTransport& host, std::vector<float>& values, const WaitPolicy& policy) {
  detail::barrier(host, policy);
  const Stopwatch stopwatch;
  host.all_reduce(values.data(), values.data(), values.size(), DataType::float32, ReduceOp::sum, policy);
  return stopwatch.seconds();
}

Measurement measure_host(HostTransport& host, const WaitPolicy& policy) {
  std::vector<float> few(2);
  std::vector<double> times;
  for (int turn = 0; turn < kRoundTrips; ++turn) times.push_back(all_reduce_time(host, few, policy));
  std::nth_element(times.begin(), times.begin() + kRoundTrips / 2, times.end());
  std::vector<float> many(kBytes / sizeof(float));
  double best = std::numeric_limits<double>::infinity();
  for (int turn = 0; turn < kRepetitions; ++turn) best = std::min(best, all_reduce_time(host, many, policy));
  return {.latency_s = times[kRoundTrips / 2], .there_gb_s = static_cast<double>(kBytes) / best / 1e9};
}

// The partner of a host in a round of a round-robin tournament (circle method): each host has one partner at a time,
// and each other host once in `count - 1` rounds. `count` is even; a partner that is not a host means that the host
// pauses.
int partner_of(int host, int round, int count) {
  const int turning = count - 1;
  if (host == turning) {
    for (int other = 0; other < turning; ++other) {
      if (2 * other % turning == round % turning) return other;
    }
  }
  const int other = ((round - host) % turning + turning) % turning;
  return other == host ? turning : other;
}

class Check {
 public:
  Check(HostTransport& world, std::vector<Host> hosts, const WaitPolicy& policy)
      : world_(world), hosts_(std::move(hosts)), policy_(policy) {}

  std::vector<Link> measure() {
    measure_hosts();
    const int count = static_cast<int>(hosts_.size() + hosts_.size() % 2);
    for (int round = 0; round + 1 < count; ++round) measure_round(round, count);
    return std::move(links_);
  }

 private:
  int own_host() const {
    const auto has_this_rank = [&](const Host& host) {
      return std::find(host.ranks.begin(), host.ranks.end(), world_.rank()) != host.ranks.end();
    };
    return static_cast<int>(std::find_if(hosts_.begin(), hosts_.end(), has_this_rank) - hosts_.begin());
  }

  const Host& host(int number) const { return hosts_[static_cast<std::size_t>(number)]; }

  void measure_hosts() {
    const auto local = world_.split(own_host(), world_.rank(), policy_);
    const auto all = gather(world_, local->world_size() > 1 ? measure_host(*local, policy_) : Measurement{}, policy_);
    for (const auto& one : hosts_) {
      if (one.ranks.size() > 1) add(one, one, static_cast<int>(one.ranks.size()), all);
    }
  }

  // The first rank of each host measures; the others wait in gather().
  void measure_round(int round, int count) {
    const int own = own_host();
    const int partner = partner_of(own, round, count);
    const bool takes_part = host(own).ranks.front() == world_.rank() && partner < static_cast<int>(hosts_.size());
    const auto pair = world_.split(takes_part ? std::min(own, partner) : count, world_.rank(), policy_);
    const auto all = gather(world_, takes_part ? measure_pair(*pair, policy_) : Measurement{}, policy_);
    for (int first = 0; first < static_cast<int>(hosts_.size()); ++first) {
      const int second = partner_of(first, round, count);
      if (first < second && second < static_cast<int>(hosts_.size())) add(host(first), host(second), 2, all);
    }
  }

  void add(const Host& from, const Host& to, int ranks, const std::vector<Measurement>& all) {
    const auto& measured = all[static_cast<std::size_t>(from.ranks.front())];
    if (world_.rank() != 0) return;
    links_.push_back({.from = from.name,
                      .to = to.name,
                      .ranks = ranks,
                      .latency_s = measured.latency_s,
                      .there_gb_s = measured.there_gb_s,
                      .back_gb_s = measured.back_gb_s});
  }

  HostTransport& world_;
  std::vector<Host> hosts_;
  const WaitPolicy& policy_;
  std::vector<Link> links_;
};

}  // namespace

ConnectionCheck check_connections(const Launch& launch, std::chrono::milliseconds timeout) {
  if (launch.world_size.value == 1) return {.description = "1 rank, which has no other to connect to"};
  const WaitPolicy policy{Deadline::after(timeout)};
  const Stopwatch stopwatch;
  const auto world = detail::connect_transport(launch, policy, nullptr);
  Introduction own{.rank = launch.rank.value, .world_size = launch.world_size.value};
  tools::own_host().copy(own.host.data(), own.host.size() - 1);
  const auto ranks = gather(*world, own, policy);
  require_agreement(launch, ranks);
  ConnectionCheck check{.description = world->describe(), .seconds = stopwatch.seconds()};
  check.links = Check{*world, hosts_of(ranks), policy}.measure();
  detail::barrier(*world, policy);
  return check;
}

}  // namespace libtrain::tools
