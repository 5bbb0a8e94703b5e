#include <libtrain/comm/detail/tcp/tcp_rendezvous.hpp>

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

#include <libtrain/base/detail/reminder.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/tcp/local_address.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kRendezvousRetryInterval{100};
constexpr milliseconds kRank0AnswerTimeout{5000};
constexpr milliseconds kRank0ErrorTimeout{1000};
constexpr double kPreference_s = 10;  // for ranks with the same arguments as rank 0
constexpr std::uint32_t kMaxRecordBytes = 4096;
constexpr std::uint32_t kMaxTableBytes = 1u << 30;

/// The first byte of a message of rank 0: a table of records follows, or the error that ended the rendezvous.
enum class Rank0Message : char { table = 't', environment = 'e', communication = 'c' };

std::string table_of(const std::vector<std::string>& records) {
  std::string table{static_cast<char>(Rank0Message::table)};
  for (const auto& record : records) {
    const auto size = static_cast<std::uint32_t>(record.size());
    table.append(reinterpret_cast<const char*>(&size), sizeof(size));
    table += record;
  }
  return table;
}

// The table is authenticated, so a mismatch is an error of the program.
std::vector<std::string> records_of(std::string_view table, int world_size) {
  std::vector<std::string> records;
  while (table.size() >= sizeof(std::uint32_t)) {
    std::uint32_t size = 0;
    std::memcpy(&size, table.data(), sizeof(size));
    table.remove_prefix(sizeof(size));
    records.emplace_back(table.substr(0, size));
    table.remove_prefix(std::min<std::size_t>(size, table.size()));
  }
  if (records.size() != static_cast<std::size_t>(world_size)) {
    throw EnvironmentError("The ranks run different versions of libtrain. Start the same program on all ranks.");
  }
  return records;
}

Hello hello_of(const RendezvousPlan& plan, const JobKey& key) {
  return {.group = key.key.id,
          .from = static_cast<std::uint32_t>(plan.rank),
          .to = 0,
          .world_size = static_cast<std::uint32_t>(plan.world_size),
          .channel = Channel::rendezvous,
          .arguments = plan.arguments,
          .key = key.fingerprint()};
}

JobKey open_key_of(const RendezvousPlan& plan) {
  return {.key = open_key(plan.job)};
}

Handshake shake_hands(const SocketAddress& address, const Hello& hello, const Digest& secret,
                      const Deadline& deadline) {
  auto socket = begin_connect(address);
  if (!socket.is_open()) return Handshake::failed(std::strerror(errno));
  auto handshake = Handshake::call(std::move(socket), hello, secret);
  while (handshake.state() == Handshake::State::underway) {
    std::vector<pollfd> polled{{.fd = handshake.descriptor(), .events = handshake.events(), .revents = 0}};
    poll_briefly(polled, deadline);
    if (handshake.advance() == Handshake::State::underway && deadline.expired()) {
      return Handshake::failed("it does not answer");
    }
  }
  return handshake;
}

// Whether a rank at `address` may connect without the key: ranks on other hosts cannot have one of this host alone.
bool may_lack_key(const RendezvousPlan& plan, const SocketAddress& address) {
  return !plan.requires_key && !plan.key.is_of_all_hosts && !plan.is_one_host && !is_of_this_host(address);
}

constexpr const char* kHowToShare =
    "set LIBTRAIN_SECRET to the same random text on all ranks, or LIBTRAIN_SECRET_FILE to a file that holds it";

}  // namespace

/// Rank 0.
class TcpRendezvous::Server {
 public:
  Server(RendezvousEndpoint& endpoint, const RendezvousPlan& plan, FileDescriptor listener)
      : endpoint_(endpoint),
        plan_(plan),
        open_key_(open_key_of(plan)),
        listening_at_(local_address(listener).name()),
        pending_(std::move(listener),
                 [this](const Hello& hello, const SocketAddress& remote) { return check_hello(hello, remote); }),
        connections_(static_cast<std::size_t>(plan.world_size)),
        refusals_(static_cast<std::size_t>(plan.world_size)) {}

  std::vector<std::string> all_gather(const std::string& own, const Deadline& deadline) try {
    const Stopwatch stopwatch;
    // If the deadline is near, ranks with other arguments must still have time to connect.
    preference_s_ = std::min(kPreference_s, std::chrono::duration<double>(deadline.remaining()).count() / 2);
    Reminder reminder;
    while (missing() > 0) {
      auto polled = interests();
      poll_briefly(polled, deadline);
      advance_connections();
      require_all_connected();
      pending_.advance(missing(),
                       [this](Handshake& caller, const std::string& address) { return admit(caller, address); });
      if (missing() > 0 && deadline.expired()) throw_missing(stopwatch);
      if (missing() > 0 && reminder.is_due()) {
        const auto reasons = known_reasons();
        log_warning(
            text("Still waiting for ", missing_ranks(), " at ", address(), reasons.empty() ? "" : ": ", reasons, "."));
      }
    }
    std::vector<std::string> records{own};
    for (std::size_t rank = 1; rank < connections_.size(); ++rank) {
      records.push_back(std::move(*connections_[rank].record));
      connections_[rank].record.reset();
    }
    if (!all_connected_) warn_of_unauthenticated_ranks();
    all_connected_ = true;
    send_to_all(table_of(records), deadline);
    return records;
  } catch (const Error& error) {
    for (auto& connection : connections_) {
      if (connection.channel) report_error(*connection.channel, error);
    }
    throw;
  }

 private:
  struct RankConnection {
    std::optional<SecureChannel> channel;
    std::optional<std::string> record;
    std::string address;
    std::string end_reason;
    bool has_key = true;
  };

  int missing() const {
    return static_cast<int>(
        std::count_if(connections_.begin() + 1, connections_.end(),
                      [](const RankConnection& connection) { return !connection.record.has_value(); }));
  }

  Handshake::Outcome check_hello(const Hello& hello, const SocketAddress& remote) {
    auto outcome = outcome_of(hello, remote);
    if (!outcome.secret && hello.from < refusals_.size()) refusals_[hello.from] = outcome.reason;
    return outcome;
  }

  Handshake::Outcome outcome_of(const Hello& hello, const SocketAddress& remote) const {
    if (hello.channel != Channel::rendezvous || hello.to != 0)
      return {.reason = "its handshake is for a different rank"};
    if (hello.group != plan_.key.key.id) {
      return {.reason = "it belongs to another job",
              .refusal = Refusal::because(Refusal::Reason::other_job, plan_.job)};
    }
    if (all_connected_) return {.reason = "all ranks have already connected"};
    const auto rank = static_cast<std::size_t>(hello.from);
    if (rank > 0 && rank < connections_.size() && connections_[rank].channel) {
      return {.reason = text("rank ", rank, " has already connected"),
              .refusal = Refusal::because(Refusal::Reason::taken, connections_[rank].address)};
    }
    if (hello.arguments != plan_.arguments && served_.seconds() < preference_s_) {
      return {.reason = "its arguments or its world size differ from rank 0's",
              .refusal = Refusal::because(Refusal::Reason::other_arguments, plan_.job)};
    }
    if (hello.key == plan_.key.fingerprint()) return {.secret = plan_.key.key.secret};
    if (hello.key == open_key_.fingerprint() && may_lack_key(plan_, remote)) return {.secret = open_key_.key.secret};
    // The caller tries again without a key.
    const char* reason = may_lack_key(plan_, remote) ? "" : "it does not have the job's secret";
    return {.reason = reason, .refusal = Refusal::because(Refusal::Reason::other_key, plan_.key.source)};
  }

  std::string admit(Handshake& caller, const std::string& address) {
    const auto hello = caller.hello();
    if (hello.from < connections_.size() && connections_[hello.from].channel) {
      return text("rank ", hello.from, " has already connected");
    }
    caller.welcome();
    if (caller.state() != Handshake::State::done) return caller.reason();
    SecureChannel channel{caller.take_socket(), caller.session_secret(), SecureChannel::Side::from_answerer,
                          kMaxRecordBytes};
    const auto rank = static_cast<std::size_t>(hello.from);
    if (hello.world_size != connections_.size() || rank == 0 || rank >= connections_.size()) {
      const EnvironmentError error{
          text("Rank ", rank, " of ", hello.world_size, " at ", address, " connected to rank 0, whose world size is ",
               connections_.size(),
               ". Set the same world size on all ranks, and give each job its own rendezvous address."),
          ErrorScope::all_ranks};
      report_error(channel, error);
      throw EnvironmentError{error};
    }
    auto& connection = connections_[rank];
    connection.channel = std::move(channel);
    connection.address = address;
    if (hello.arguments != plan_.arguments) {
      log_warning(
          text("Rank ", rank, " at ", address,
               " has different command line arguments than rank 0, and joins because no other process connected as "
               "this rank. If it belongs to another job, set a different MASTER_PORT and LIBTRAIN_JOB_ID for each "
               "job."));
    }
    connection.has_key = hello.key == plan_.key.fingerprint();
    return {};
  }

  std::vector<pollfd> interests() const {
    std::vector<pollfd> polled;
    pending_.add_interests(polled, missing());
    add_interests(polled);
    return polled;
  }

  void add_interests(std::vector<pollfd>& polled) const {
    for (const auto& connection : connections_) {
      if (!connection.channel) continue;
      polled.push_back({.fd = connection.channel->descriptor(), .events = connection.channel->events(), .revents = 0});
    }
  }

  void advance_connections() {
    for (std::size_t rank = 1; rank < connections_.size(); ++rank) {
      auto& connection = connections_[rank];
      if (!connection.channel) continue;
      connection.channel->advance();
      if (!connection.record) connection.record = connection.channel->take();
      const auto reason = connection.channel->reason();
      if (reason.empty()) continue;
      if (all_connected_) {
        // The rank may have received everything that it needs.
        connection.channel.reset();
        connection.end_reason = reason;
        continue;
      }
      log_warning(text("Rank ", rank, " at ", connection.address, " disconnected during the rendezvous (", reason,
                       "). Rank 0 waits for it to reconnect."));
      connection = {};
    }
  }

  // Once the ranks have the first table, none can be replaced.
  void require_all_connected() const {
    for (std::size_t rank = 1; all_connected_ && rank < connections_.size(); ++rank) {
      const auto& connection = connections_[rank];
      if (connection.channel || connection.record) continue;
      throw CommunicationError(text("Rank ", rank, " at ", connection.address, " disconnected during the rendezvous (",
                                    connection.end_reason, "). See the log of that rank."),
                               ErrorScope::all_ranks);
    }
  }

  void send_to_all(const std::string& message, const Deadline& deadline) {
    for (auto& connection : connections_) {
      if (!connection.channel) continue;
      connection.channel->send(message);
      connection.channel->advance();  // so that not all copies are in memory at once
    }
    const auto is_sending = [](const RankConnection& connection) {
      return connection.channel && !connection.channel->is_sent();
    };
    while (true) {
      advance_connections();
      if (std::none_of(connections_.begin(), connections_.end(), is_sending)) return;
      if (deadline.expired()) {
        throw CommunicationError(
            "A rank did not read the data from rank 0 before the deadline. See the logs of the other ranks.");
      }
      std::vector<pollfd> polled;
      add_interests(polled);
      poll_briefly(polled, deadline);
    }
  }

  // Best effort.
  static void report_error(SecureChannel& channel, const Error& error) noexcept try {
    const bool is_environment = error.exit_code() == ExitCode::environment;
    const auto kind = is_environment ? Rank0Message::environment : Rank0Message::communication;
    channel.send(static_cast<char>(kind) + std::string{error.what()});
    channel.advance();
  } catch (const std::exception&) {
    // The caller throws the error itself.
  }

  std::string missing_ranks() const {
    std::vector<int> ranks;
    std::vector<std::string> hosts;
    for (std::size_t rank = 1; rank < connections_.size(); ++rank) {
      if (connections_[rank].record) continue;
      ranks.push_back(static_cast<int>(rank));
      if (rank < plan_.hosts.size() && std::find(hosts.begin(), hosts.end(), plan_.hosts[rank]) == hosts.end()) {
        hosts.push_back(plan_.hosts[rank]);
      }
    }
    constexpr std::size_t kMaxHosts = 8;
    if (hosts.size() > kMaxHosts) {
      hosts.resize(kMaxHosts);
      hosts.emplace_back("...");
    }
    return text(ranks_in_words(ranks), " of ", plan_.world_size, hosts.empty() ? "" : " on ", join(hosts, ", "));
  }

  std::string address() const {
    const auto name = endpoint_.name();
    return name.ends_with(listening_at_) ? name : text(name, " (listening at ", listening_at_, ")");
  }

  // The known reasons why missing ranks have not connected.
  std::string known_reasons() const {
    std::vector<std::string> reasons;
    for (std::size_t rank = 1; rank < connections_.size(); ++rank) {
      const auto& connection = connections_[rank];
      if (connection.record) continue;
      if (connection.channel) {
        reasons.push_back(text("rank ", rank, " at ", connection.address, " has connected but sends no data"));
      } else if (!refusals_[rank].empty()) {
        reasons.push_back(text("a process that connected as rank ", rank, " was refused, because ", refusals_[rank]));
      }
    }
    constexpr std::size_t kMaxReasons = 4;
    if (reasons.size() > kMaxReasons) {
      reasons.resize(kMaxReasons);
      reasons.emplace_back("...");
    }
    return join(reasons, "; ");
  }

  [[noreturn]] void throw_missing(const Stopwatch& stopwatch) const {
    const auto seconds = std::round(10 * stopwatch.seconds()) / 10;
    const auto reasons = known_reasons();
    throw CommunicationError(text(missing_ranks(), " did not connect to ", address(), " within ", seconds, " s",
                                  reasons.empty() ? "" : ": ", reasons,
                                  reasons.empty() ? ". Check that those processes are running and can reach rank 0."
                                                  : ". See the log of each missing rank."),
                             ErrorScope::all_ranks);
  }

  void warn_of_unauthenticated_ranks() const {
    std::vector<int> ranks;
    for (std::size_t rank = 1; rank < connections_.size(); ++rank) {
      if (!connections_[rank].has_key) ranks.push_back(static_cast<int>(rank));
    }
    if (ranks.empty()) return;
    log_warning(text("Rank 0 and ", ranks_in_words(ranks),
                     " on other hosts have no common secret: during the rendezvous, any process that can connect to ",
                     endpoint_.name(), " can join the job. To prevent this, ", kHowToShare, "."));
  }

  RendezvousEndpoint& endpoint_;
  const RendezvousPlan& plan_;
  JobKey open_key_;
  std::string listening_at_;
  PendingConnections pending_;
  std::vector<RankConnection> connections_;  // that of rank 0 stays empty
  std::vector<std::string> refusals_;        // the last one of each rank
  bool all_connected_ = false;
  Stopwatch served_;
  double preference_s_ = kPreference_s;
};

/// Any other rank.
class TcpRendezvous::Client {
 public:
  Client(RendezvousEndpoint& endpoint, RendezvousPlan& plan) : endpoint_(endpoint), plan_(plan) {}

  std::vector<std::string> all_gather(const std::string& own, const Deadline& deadline) {
    const Stopwatch stopwatch;
    Reminder reminder;
    std::string reason = "its address is not known";
    while (true) {
      if (!channel_) reason = connect(deadline).value_or(reason);
      if (channel_) {
        channel_->send(own);
        if (auto table = receive(deadline, reminder)) {
          all_connected_ = true;
          return records_of(std::string_view{*table}.substr(1), plan_.world_size);
        }
        reason = channel_->reason();
        channel_.reset();
        if (all_connected_) {
          throw CommunicationError(text("Rank 0 at ", endpoint_.name(), " disconnected during the rendezvous (", reason,
                                        "). See the log of rank 0."));
        }
      }
      if (deadline.expired()) {
        throw CommunicationError(text("Rank 0 did not accept a connection at ", endpoint_.name(), " within ",
                                      std::round(10 * stopwatch.seconds()) / 10, " s (", reason,
                                      "). Check that rank 0 is running and that no firewall blocks the port."));
      }
      remind(reminder, text("Still waiting for rank 0 at ", endpoint_.name(), " (", reason, ")."));
      std::this_thread::sleep_for(std::min<Deadline::Clock::duration>(kRendezvousRetryInterval, deadline.remaining()));
    }
  }

 private:
  // Only rank 1 warns: the other ranks wait for the same.
  void remind(Reminder& reminder, const std::string& message) const {
    if (reminder.is_due()) log_message(plan_.rank == 1 ? LogLevel::warning : LogLevel::debug, message);
  }

  // Opens channel_, or returns the reason why not, if an address of rank 0 is known.
  std::optional<std::string> connect(const Deadline& deadline) {
    std::optional<std::string> reason;
    for (const auto& address : endpoint_.find(deadline)) {
      if (const auto secret = endpoint_.secret()) use_secret(*secret);
      reason = call(address, deadline);
      if (channel_) return std::nullopt;
    }
    return reason;
  }

  // A secret that only this job's ranks can read at the endpoint.
  void use_secret(const Digest& secret) {
    plan_.key.key.secret = secret;
    plan_.key.source = endpoint_.name();
    plan_.key.is_of_all_hosts = true;
  }

  std::string call(const SocketAddress& address, const Deadline& deadline) {
    const auto limit = std::min(deadline.time_point(), Deadline::after(kRank0AnswerTimeout).time_point());
    const auto key = lacks_key_ ? open_key_of(plan_) : plan_.key;
    auto handshake = shake_hands(address, hello_of(plan_, key), key.key.secret, Deadline::at(limit));
    if (handshake.refusal()) {
      const auto& refusal = *handshake.refusal();
      if (refusal.reason == Refusal::Reason::other_key && !lacks_key_ && may_lack_key(plan_, address)) {
        lacks_key_ = true;
        return call(address, deadline);
      }
      if (refusal.reason == Refusal::Reason::other_arguments) {
        return "the arguments or the world size of this rank differ from rank 0's, so rank 0 accepts other processes "
               "first; set the same LIBTRAIN_JOB_ID on all ranks to avoid this wait";
      }
      const auto error = error_of(refusal, address);
      if (endpoint_.is_trusted()) throw EnvironmentError{error};
      return error.what();
    }
    if (handshake.state() != Handshake::State::done) return handshake.reason();
    const auto secret = handshake.session_secret();
    channel_.emplace(handshake.take_socket(), secret, SecureChannel::Side::from_caller, kMaxTableBytes);
    return {};
  }

  EnvironmentError error_of(const Refusal& refusal, const SocketAddress& address) const {
    const std::string words = refusal.text.data();
    switch (refusal.reason) {
      case Refusal::Reason::other_job:
        return EnvironmentError(
            text("Another job (", words, ") uses the rendezvous address ", endpoint_.name(), "; this rank belongs to ",
                 plan_.job,
                 ". Give each job its own MASTER_PORT or --dist-url, and set the same LIBTRAIN_JOB_ID on all ranks of "
                 "a job."));
      case Refusal::Reason::taken:
        return EnvironmentError(
            text("Another process has already connected as rank ", plan_.rank, " at ", endpoint_.name(), " (", words,
                 "). Check that no two processes have the same rank, and give each job its own rendezvous address."));
      default:
        return EnvironmentError(text("Rank 0 at ", address.name(), " has a different job secret: this rank uses ",
                                     plan_.key.source, " on its host, rank 0 uses ", words,
                                     " on its host. To use one secret, ", kHowToShare, "."));
    }
  }

  // std::nullopt if the connection was lost.
  std::optional<std::string> receive(const Deadline& deadline, Reminder& reminder) {
    // At its own deadline, rank 0 reports the missing ranks.
    const auto limit = deadline.later_by(kRank0ErrorTimeout);
    while (true) {
      channel_->advance();
      if (auto message = channel_->take()) {
        if (message->starts_with(static_cast<char>(Rank0Message::table))) return message;
        throw_reported(*message);
      }
      if (!channel_->reason().empty()) return std::nullopt;
      if (limit.expired()) {
        throw CommunicationError(
            text("This rank timed out at ", endpoint_.name(),
                 " before all ranks had connected to rank 0. See the log of rank 0; if it shows no error, check that "
                 "rank 0 is running and that the network between the hosts works."));
      }
      remind(reminder, text("Still waiting for other ranks at ", endpoint_.name(), ". The log of rank 0 names them."));
      std::vector<pollfd> polled{{.fd = channel_->descriptor(), .events = channel_->events(), .revents = 0}};
      poll_briefly(polled, limit);
    }
  }

  [[noreturn]] static void throw_reported(const std::string& message) {
    const auto reason = message.substr(std::min<std::size_t>(1, message.size()));
    if (message.starts_with(static_cast<char>(Rank0Message::environment))) {
      throw EnvironmentError(reason, ErrorScope::all_ranks);
    }
    throw CommunicationError(reason, ErrorScope::all_ranks);
  }

  RendezvousEndpoint& endpoint_;
  RendezvousPlan& plan_;
  std::optional<SecureChannel> channel_;
  bool lacks_key_ = false;
  bool all_connected_ = false;
};

TcpRendezvous::TcpRendezvous(std::unique_ptr<RendezvousEndpoint> endpoint, RendezvousPlan plan)
    : endpoint_(std::move(endpoint)), plan_(std::move(plan)) {}

TcpRendezvous::~TcpRendezvous() = default;

std::vector<std::string> TcpRendezvous::all_gather(const std::string& own, const Deadline& deadline) {
  if (plan_.rank != 0) {
    if (!client_) client_ = std::make_unique<Client>(*endpoint_, plan_);
    return client_->all_gather(own, deadline);
  }
  if (!server_) {
    auto listener = endpoint_->serve(deadline);
    if (const auto secret = endpoint_->secret()) {
      plan_.key.key.secret = *secret;
      plan_.key.is_of_all_hosts = true;
    }
    server_ = std::make_unique<Server>(*endpoint_, plan_, std::move(listener));
  }
  return server_->all_gather(own, deadline);
}

void TcpRendezvous::leave() noexcept {
  server_.reset();
  client_.reset();
  if (plan_.rank == 0) endpoint_->close();
}

std::optional<std::string> job_at(const SocketAddress& address) {
  const Hello of_no_job{.world_size = 1, .channel = Channel::rendezvous};
  const auto handshake = shake_hands(address, of_no_job, Digest{}, Deadline::after(milliseconds(2000)));
  const auto& refusal = handshake.refusal();
  if (!refusal || refusal->reason != Refusal::Reason::other_job) return std::nullopt;
  return std::string{refusal->text.data()};
}

}  // namespace libtrain::detail
