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

constexpr milliseconds kLongestPoll{50};
constexpr milliseconds kCallAgainAfter{100};
constexpr milliseconds kLongestCall{5000};
constexpr milliseconds kFarewellTime{1000};
constexpr double kPreference_s = 10;  // for ranks that were started as rank 0
constexpr std::uint32_t kLargestRecord = 4096;
constexpr std::uint32_t kLargestTable = 1u << 30;

/// What rank 0 says: a table of records, or why the meeting is over.
enum class Word : char { table = 't', environment = 'e', communication = 'c' };

std::string table_of(const std::vector<std::string>& records) {
  std::string table{static_cast<char>(Word::table)};
  for (const auto& record : records) {
    const auto size = static_cast<std::uint32_t>(record.size());
    table.append(reinterpret_cast<const char*>(&size), sizeof(size));
    table += record;
  }
  return table;
}

// Only from the holder of the key: what does not fit is an error of the program.
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
    throw EnvironmentError("The ranks run different versions of libtrain: start the same program everywhere.");
  }
  return records;
}

void poll_for(std::vector<pollfd>& polled, const Deadline& deadline) {
  const auto wait = std::min<Deadline::Clock::duration>(deadline.remaining(), kLongestPoll);
  const auto time = static_cast<int>(std::chrono::ceil<milliseconds>(wait).count());
  if (poll(polled.data(), polled.size(), time) < 0 && errno != EINTR) throw_system_error("poll");
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

// Whether a rank at `address` may be without the key.
bool may_lack_key(const RendezvousPlan& plan, const SocketAddress& address) {
  return !plan.requires_key && !plan.key.is_of_all_hosts && !plan.is_one_host && !is_of_this_host(address);
}

constexpr const char* kHowToShare =
    "set LIBTRAIN_SECRET to the same random text on all ranks, or LIBTRAIN_SECRET_FILE to a file that holds it";

}  // namespace

/// Rank 0.
class TcpRendezvous::Server {
 public:
  Server(RendezvousPlace& place, const RendezvousPlan& plan, FileDescriptor listener)
      : place_(place),
        plan_(plan),
        open_key_(open_key_of(plan)),
        listening_at_(local_address(listener).name()),
        pending_(std::move(listener),
                 [this](const Hello& hello, const SocketAddress& remote) { return judge(hello, remote); }),
        seats_(static_cast<std::size_t>(plan.world_size)),
        refusals_(static_cast<std::size_t>(plan.world_size)) {}

  std::vector<std::string> all_gather(const std::string& own, const Deadline& deadline) try {
    const Stopwatch stopwatch;
    // Others still get in before a deadline that is near.
    preference_s_ = std::min(kPreference_s, std::chrono::duration<double>(deadline.remaining()).count() / 2);
    Reminder reminder;
    while (missing() > 0) {
      auto polled = interests();
      poll_for(polled, deadline);
      advance_seats();
      require_all_seated();
      pending_.advance(missing(),
                       [this](Handshake& caller, const std::string& address) { return admit(caller, address); });
      if (missing() > 0 && deadline.expired()) throw_missing(stopwatch);
      if (missing() > 0 && reminder.is_due()) {
        const auto reasons = known_reasons();
        log_warning(text("Still waiting for ", missing_ranks(), reasons.empty() ? "" : ": ", reasons, "."));
      }
    }
    std::vector<std::string> records{own};
    for (std::size_t rank = 1; rank < seats_.size(); ++rank) records.push_back(std::move(*seats_[rank].record));
    for (auto& seat : seats_) seat.record.reset();
    if (!has_met_) warn_of_strangers();
    has_met_ = true;
    send_to_all(table_of(records), deadline);
    return records;
  } catch (const Error& error) {
    tell_failure(error);
    throw;
  }

 private:
  struct Seat {
    std::optional<SecureChannel> channel;
    std::optional<std::string> record;
    std::string address;
    std::string left_because;
    bool has_key = true;
  };

  int missing() const {
    return static_cast<int>(
        std::count_if(seats_.begin() + 1, seats_.end(), [](const Seat& seat) { return !seat.record.has_value(); }));
  }

  Handshake::Verdict judge(const Hello& hello, const SocketAddress& remote) {
    auto verdict = verdict_of(hello, remote);
    if (!verdict.secret && hello.from < refusals_.size()) refusals_[hello.from] = verdict.trouble;
    return verdict;
  }

  Handshake::Verdict verdict_of(const Hello& hello, const SocketAddress& remote) const {
    if (hello.channel != Channel::rendezvous || hello.to != 0)
      return {.trouble = "it looks for a rank that is not here"};
    if (hello.group != plan_.key.key.id) {
      return {.trouble = "it belongs to another job",
              .refusal = Refusal::because(Refusal::Reason::other_job, plan_.job)};
    }
    if (has_met_) return {.trouble = "the ranks have met already"};
    const auto rank = static_cast<std::size_t>(hello.from);
    if (rank > 0 && rank < seats_.size() && seats_[rank].channel) {
      return {.trouble = text("it says that it is rank ", rank, ", which has connected already"),
              .refusal = Refusal::because(Refusal::Reason::taken, seats_[rank].address)};
    }
    if (hello.arguments != plan_.arguments && served_.seconds() < preference_s_) {
      return {.trouble = "it was started with other arguments or another world size than rank 0",
              .refusal = Refusal::because(Refusal::Reason::other_arguments, plan_.job)};
    }
    if (hello.key == plan_.key.fingerprint()) return {.secret = plan_.key.key.secret};
    if (hello.key == open_key_.fingerprint() && may_lack_key(plan_, remote)) return {.secret = open_key_.key.secret};
    // It comes again without one.
    const char* trouble = may_lack_key(plan_, remote) ? "" : "it does not have the job's secret";
    return {.trouble = trouble, .refusal = Refusal::because(Refusal::Reason::other_key, plan_.key.source)};
  }

  std::string admit(Handshake& caller, const std::string& address) {
    const auto hello = caller.hello();
    if (hello.from < seats_.size() && seats_[hello.from].channel) {
      return text("it says that it is rank ", hello.from, ", which has connected already");
    }
    caller.welcome();
    if (caller.state() != Handshake::State::done) return caller.trouble();
    SecureChannel channel{caller.take_socket(), caller.session_secret(), SecureChannel::Side::from_answerer,
                          kLargestRecord};
    const auto rank = static_cast<std::size_t>(hello.from);
    if (hello.world_size != seats_.size() || rank == 0 || rank >= seats_.size()) {
      const EnvironmentError error{
          text("Rank ", rank, " of ", hello.world_size, " at ", address, " came to rank 0 of ", seats_.size(),
               ": give all ranks the same world size, and each job a rendezvous of its own."),
          ErrorScope::all_ranks};
      tell(channel, error);
      throw EnvironmentError{error};
    }
    auto& seat = seats_[rank];
    seat.channel = std::move(channel);
    seat.address = address;
    if (hello.arguments != plan_.arguments) {
      log_warning(
          text("Rank ", rank, " at ", address,
               " was started with other arguments than rank 0, and joins because no other came. If it belongs to "
               "another job, give each job a MASTER_PORT and all its ranks a LIBTRAIN_JOB_ID of its own."));
    }
    seat.has_key = hello.key == plan_.key.fingerprint();
    return {};
  }

  std::vector<pollfd> interests() const {
    std::vector<pollfd> polled;
    pending_.add_interests(polled, missing());
    add_seats(polled);
    return polled;
  }

  void add_seats(std::vector<pollfd>& polled) const {
    for (const auto& seat : seats_) {
      if (!seat.channel) continue;
      polled.push_back({.fd = seat.channel->descriptor(), .events = seat.channel->events(), .revents = 0});
    }
  }

  void advance_seats() {
    for (std::size_t rank = 1; rank < seats_.size(); ++rank) {
      auto& seat = seats_[rank];
      if (!seat.channel) continue;
      const bool lives = seat.channel->advance();
      if (!seat.record) seat.record = seat.channel->take();
      if (lives && seat.channel->trouble().empty()) continue;
      const auto trouble = seat.channel->trouble();
      if (has_met_) {
        // It may have got all it wants.
        seat.channel.reset();
        seat.left_because = trouble;
        continue;
      }
      log_warning(text("Rank ", rank, " at ", seat.address, " left while the ranks were meeting (", trouble,
                       "); it may come again."));
      seat = {};
    }
  }

  // Once ranks have heard of each other, none can be replaced.
  void require_all_seated() const {
    for (std::size_t rank = 1; has_met_ && rank < seats_.size(); ++rank) {
      const auto& seat = seats_[rank];
      if (seat.channel || seat.record) continue;
      throw CommunicationError(text("Rank ", rank, " at ", seat.address, " left while the ranks were meeting (",
                                    seat.left_because, "): look for its own message."),
                               ErrorScope::all_ranks);
    }
  }

  void send_to_all(const std::string& message, const Deadline& deadline) {
    for (auto& seat : seats_) {
      if (!seat.channel) continue;
      seat.channel->send(message);
      seat.channel->advance();  // so that not all copies are in memory at once
    }
    const auto waits = [](const Seat& seat) { return seat.channel && !seat.channel->is_sent(); };
    while (true) {
      advance_seats();
      if (std::none_of(seats_.begin(), seats_.end(), waits)) return;
      if (deadline.expired())
        throw CommunicationError("A rank did not read what the others have sent before the deadline.");
      std::vector<pollfd> polled;
      add_seats(polled);
      poll_for(polled, deadline);
    }
  }

  // Best effort: those who are there should not have to guess.
  void tell_failure(const Error& error) noexcept {
    for (auto& seat : seats_) {
      if (seat.channel) tell(*seat.channel, error);
    }
  }

  static void tell(SecureChannel& channel, const Error& error) noexcept try {
    const auto word = error.exit_code() == ExitCode::environment ? Word::environment : Word::communication;
    channel.send(static_cast<char>(word) + std::string{error.what()});
    channel.advance();
  } catch (const std::exception&) {
    // The error itself is what must be told.
  }

  std::string missing_ranks() const {
    std::vector<int> ranks;
    std::vector<std::string> hosts;
    for (std::size_t rank = 1; rank < seats_.size(); ++rank) {
      if (seats_[rank].record) continue;
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
    return text(ranks_in_words(ranks), " of ", plan_.world_size, hosts.empty() ? "" : ", on ", join(hosts, ", "),
                ", at ", place_.name(),
                place_.name().ends_with(listening_at_) ? "" : text(" (listening at ", listening_at_, ")"));
  }

  // Why ranks that are missing have not got in, as far as anything was heard of them.
  std::string known_reasons() const {
    std::vector<std::string> reasons;
    for (std::size_t rank = 1; rank < seats_.size(); ++rank) {
      const auto& seat = seats_[rank];
      if (seat.record) continue;
      if (seat.channel) {
        reasons.push_back(text("rank ", rank, " at ", seat.address, " has connected and sends nothing"));
      } else if (!refusals_[rank].empty()) {
        reasons.push_back(text("a process that connected as rank ", rank, " was refused, because ", refusals_[rank]));
      }
    }
    constexpr std::size_t kMaxReasons = 4;
    if (reasons.size() > kMaxReasons) {
      reasons.resize(kMaxReasons);
      reasons.emplace_back("and others");
    }
    return join(reasons, "; ");
  }

  [[noreturn]] void throw_missing(const Stopwatch& stopwatch) const {
    const auto seconds = std::round(10 * stopwatch.seconds()) / 10;
    const auto reasons = known_reasons();
    if (!reasons.empty()) {
      throw CommunicationError(text("Within ", seconds, " s ", missing_ranks(), " did not connect: ", reasons, "."),
                               ErrorScope::all_ranks);
    }
    throw CommunicationError(text("Within ", seconds, " s there was no sign of ", missing_ranks(),
                                  ": those processes did not start, have ended, or cannot reach the place."),
                             ErrorScope::all_ranks);
  }

  void warn_of_strangers() const {
    std::vector<int> ranks;
    for (std::size_t rank = 1; rank < seats_.size(); ++rank) {
      if (!seats_[rank].has_key) ranks.push_back(static_cast<int>(rank));
    }
    if (ranks.empty()) return;
    log_warning(text("No secret is shared by rank 0 and ", ranks_in_words(ranks),
                     ", on other hosts: while ranks meet, any process that reaches ", place_.name(),
                     " can join the job. To prevent that, ", kHowToShare, "."));
  }

  RendezvousPlace& place_;
  const RendezvousPlan& plan_;
  JobKey open_key_;
  std::string listening_at_;
  PendingConnections pending_;
  std::vector<Seat> seats_;            // that of rank 0 stays empty
  std::vector<std::string> refusals_;  // the last one of each rank
  bool has_met_ = false;
  Stopwatch served_;
  double preference_s_ = kPreference_s;
};

/// Any other rank.
class TcpRendezvous::Client {
 public:
  Client(RendezvousPlace& place, RendezvousPlan& plan) : place_(place), plan_(plan) {}

  std::vector<std::string> all_gather(const std::string& own, const Deadline& deadline) {
    const Stopwatch stopwatch;
    Reminder reminder;
    std::string trouble = "nothing says where it is";
    while (true) {
      if (!channel_) trouble = connect(deadline).value_or(trouble);
      if (channel_) {
        channel_->send(own);
        if (auto table = receive(deadline, reminder)) {
          has_met_ = true;
          return records_of(std::string_view{*table}.substr(1), plan_.world_size);
        }
        trouble = channel_->trouble();
        channel_.reset();
        if (has_met_) {
          throw CommunicationError(text("Rank 0 at ", place_.name(), " left while the ranks were meeting (", trouble,
                                        "): look for its own message."));
        }
      }
      if (deadline.expired()) {
        throw CommunicationError(text("Rank 0 was not found at ", place_.name(), " within ",
                                      std::round(10 * stopwatch.seconds()) / 10, " s (", trouble,
                                      "): it did not start, has ended, or a firewall is between the hosts."));
      }
      remind(reminder, text("Still waiting for rank 0 at ", place_.name(), " (", trouble, ")."));
      std::this_thread::sleep_for(std::min<Deadline::Clock::duration>(kCallAgainAfter, deadline.remaining()));
    }
  }

 private:
  // Of many ranks that wait for the same, one says so.
  void remind(Reminder& reminder, const std::string& message) const {
    if (reminder.is_due()) log_message(plan_.rank == 1 ? LogLevel::warning : LogLevel::debug, message);
  }

  // Nothing, and a channel, where it succeeds; else why not.
  std::optional<std::string> connect(const Deadline& deadline) {
    std::optional<std::string> trouble;
    for (const auto& address : place_.find(deadline)) {
      if (const auto secret = place_.secret()) use_secret(*secret);
      trouble = call(address, deadline);
      if (channel_) return std::nullopt;
    }
    return trouble;
  }

  // A secret that only this job's ranks can read where they meet.
  void use_secret(const Digest& secret) {
    plan_.key.key.secret = secret;
    plan_.key.source = place_.name();
    plan_.key.is_of_all_hosts = true;
  }

  std::string call(const SocketAddress& address, const Deadline& deadline) {
    auto handshake = shake_hands(address, lacks_key_ ? open_key_of(plan_) : plan_.key, deadline);
    if (handshake.refusal()) {
      const auto& refusal = *handshake.refusal();
      if (refusal.reason == Refusal::Reason::other_key && !lacks_key_ && may_lack_key(plan_, address)) {
        lacks_key_ = true;
        return call(address, deadline);
      }
      if (refusal.reason == Refusal::Reason::other_arguments) {
        return "this rank was started with other arguments or another world size than rank 0, which waits for others "
               "first; a LIBTRAIN_JOB_ID that all ranks have in common saves the time";
      }
      const auto error = error_of(refusal, address);
      if (place_.is_trusted()) throw EnvironmentError{error};
      return error.what();
    }
    if (handshake.state() != Handshake::State::done) return handshake.trouble();
    const auto secret = handshake.session_secret();
    channel_.emplace(handshake.take_socket(), secret, SecureChannel::Side::from_caller, kLargestTable);
    return {};
  }

  Handshake shake_hands(const SocketAddress& address, const JobKey& key, const Deadline& deadline) const {
    auto socket = begin_connect(address);
    if (!socket.is_open()) return Handshake::failed(std::strerror(errno));
    auto handshake = Handshake::call(std::move(socket), hello_of(plan_, key), key.key.secret);
    const auto limit = Deadline::after(kLongestCall);
    while (handshake.state() == Handshake::State::underway) {
      std::vector<pollfd> polled{{.fd = handshake.descriptor(), .events = handshake.events(), .revents = 0}};
      poll_for(polled, deadline);
      if (polled.front().revents != 0) {
        handshake.advance();
      } else if (deadline.expired() || limit.expired()) {
        return Handshake::failed("it does not answer");
      }
    }
    return handshake;
  }

  EnvironmentError error_of(const Refusal& refusal, const SocketAddress& address) const {
    const std::string words = refusal.text.data();
    switch (refusal.reason) {
      case Refusal::Reason::other_job:
        return EnvironmentError(
            text("At ", place_.name(), " the ranks of another job are meeting (", words, "); this rank belongs to ",
                 plan_.job,
                 ": give each job a MASTER_PORT or --dist-url of its own, and all ranks of one job the "
                 "same LIBTRAIN_JOB_ID where they do not have one in common."));
      case Refusal::Reason::taken:
        return EnvironmentError(text("At ", place_.name(), " rank ", plan_.rank, " has connected already (", words,
                                     "): two processes have the same rank, or two jobs meet there; give each job a "
                                     "rendezvous of its own."));
      default:
        return EnvironmentError(text(
            "Rank 0 at ", address.name(), " does not have this rank's secret. This rank has that of ", plan_.key.source,
            " on its host, rank 0 that of ", words, " on its own. For one in common, ", kHowToShare, "."));
    }
  }

  // Nothing where the connection was lost.
  std::optional<std::string> receive(const Deadline& deadline, Reminder& reminder) {
    // Rank 0, which knows who is missing, says so at its own deadline.
    const auto limit = deadline.later_by(kFarewellTime);
    while (true) {
      const bool lives = channel_->advance();
      if (auto message = channel_->take()) {
        if (message->starts_with(static_cast<char>(Word::table))) return message;
        throw_told(*message);
      }
      if (!lives || !channel_->trouble().empty()) return std::nullopt;
      if (limit.expired()) {
        throw CommunicationError(
            text("Not all ranks had connected to rank 0 at ", place_.name(),
                 " when this rank's time was over: look for the message of rank 0; if it has none, "
                 "it is stopped, or the network between the hosts is interrupted."));
      }
      remind(reminder, text("Still waiting for others at ", place_.name(), "; rank 0 knows which."));
      std::vector<pollfd> polled{{.fd = channel_->descriptor(), .events = channel_->events(), .revents = 0}};
      poll_for(polled, limit);
    }
  }

  [[noreturn]] static void throw_told(const std::string& message) {
    const auto reason = message.substr(std::min<std::size_t>(1, message.size()));
    if (message.starts_with(static_cast<char>(Word::environment)))
      throw EnvironmentError(reason, ErrorScope::all_ranks);
    throw CommunicationError(reason, ErrorScope::all_ranks);
  }

  RendezvousPlace& place_;
  RendezvousPlan& plan_;
  std::optional<SecureChannel> channel_;
  bool lacks_key_ = false;
  bool has_met_ = false;
};

TcpRendezvous::TcpRendezvous(std::unique_ptr<RendezvousPlace> place, RendezvousPlan plan)
    : place_(std::move(place)), plan_(std::move(plan)) {}

TcpRendezvous::~TcpRendezvous() = default;

std::vector<std::string> TcpRendezvous::all_gather(const std::string& own, const Deadline& deadline) {
  if (plan_.rank != 0) {
    if (!client_) client_ = std::make_unique<Client>(*place_, plan_);
    return client_->all_gather(own, deadline);
  }
  if (!server_) {
    auto listener = place_->serve(deadline);
    if (const auto secret = place_->secret()) {
      plan_.key.key.secret = *secret;
      plan_.key.is_of_all_hosts = true;
    }
    server_ = std::make_unique<Server>(*place_, plan_, std::move(listener));
  }
  return server_->all_gather(own, deadline);
}

void TcpRendezvous::leave() noexcept {
  server_.reset();
  client_.reset();
  if (plan_.rank == 0) place_->close();
}

std::optional<std::string> job_at(const SocketAddress& address) {
  auto socket = begin_connect(address);
  if (!socket.is_open()) return std::nullopt;
  // No job has this name.
  auto handshake = Handshake::call(std::move(socket), {.world_size = 1, .channel = Channel::rendezvous}, Digest{});
  const auto deadline = Deadline::after(milliseconds(2000));
  while (handshake.state() == Handshake::State::underway && !deadline.expired()) {
    std::vector<pollfd> polled{{.fd = handshake.descriptor(), .events = handshake.events(), .revents = 0}};
    poll_for(polled, deadline);
    if (polled.front().revents != 0) handshake.advance();
  }
  const auto& refusal = handshake.refusal();
  if (!refusal || refusal->reason != Refusal::Reason::other_job) return std::nullopt;
  return std::string{refusal->text.data()};
}

}  // namespace libtrain::detail
