#include <libtrain/comm/detail/tcp/mesh_connector.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <libtrain/base/detail/reminder.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

constexpr std::chrono::milliseconds kCallAgainAfter{50};
constexpr std::chrono::milliseconds kLongestPoll{50};

bool is_ready(const Handshake& handshake) {
  if (handshake.state() != Handshake::State::underway) return false;
  pollfd ready{.fd = handshake.descriptor(), .events = handshake.events(), .revents = 0};
  return poll(&ready, 1, 0) != 0;
}

}  // namespace

MeshConnector::MeshConnector(const MeshPlan& plan, FileDescriptor listener)
    : plan_(plan),
      links_(plan.addresses.size()),
      pending_(std::move(listener), [this](const Hello& hello, const SocketAddress&) { return judge(hello); }),
      troubles_(plan.addresses.size()),
      missing_(2 * (static_cast<int>(plan.addresses.size()) - 1)) {
  for (int peer = 0; peer < plan_.rank; ++peer) {
    for (const auto channel : {Channel::data, Channel::control}) {
      calls_.push_back({.peer = peer, .channel = channel, .handshake = dial(peer, channel)});
    }
  }
}

std::vector<Link> MeshConnector::connect(const Deadline& deadline, const std::function<void()>& look) {
  Reminder reminder;
  while (missing_ > 0) {
    look();
    auto polled = interests();
    const auto poll_time = std::min<Clock::duration>(deadline.remaining(), kLongestPoll);
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(poll_time).count();
    if (poll(polled.data(), polled.size(), static_cast<int>(milliseconds)) < 0 && errno != EINTR) {
      throw_system_error("poll");
    }
    advance_calls();
    pending_.advance(missing_, [this](Handshake& caller, const std::string&) { return admit(caller); });
    if (missing_ > 0 && deadline.expired()) {
      throw CommunicationError(text("Not connected before the deadline: ", missing_peers(),
                                    ". Those processes ended or are stopped, or a firewall between the hosts does not "
                                    "let all ports through."));
    }
    if (missing_ > 0 && reminder.is_due()) log_warning(text("Still not connected: ", missing_peers(), "."));
  }
  return std::move(links_);
}

Handshake MeshConnector::dial(int peer, Channel channel) const {
  const auto& address = plan_.addresses[static_cast<std::size_t>(peer)];
  const auto parsed = SocketAddress::parse(address);
  if (!parsed) throw CommunicationError(text("Rank ", peer, " gave '", address, "' as its address."));
  auto socket = begin_connect(*parsed);
  if (!socket.is_open()) return Handshake::failed(std::strerror(errno));
  const Hello hello{.group = plan_.key.id,
                    .from = static_cast<std::uint32_t>(plan_.rank),
                    .to = static_cast<std::uint32_t>(peer),
                    .world_size = static_cast<std::uint32_t>(plan_.addresses.size()),
                    .channel = channel};
  return Handshake::call(std::move(socket), hello, plan_.key.secret);
}

std::vector<pollfd> MeshConnector::interests() const {
  std::vector<pollfd> polled;
  pending_.add_interests(polled, missing_);
  for (const auto& call : calls_) {
    if (call.handshake.state() != Handshake::State::underway) continue;
    polled.push_back({.fd = call.handshake.descriptor(), .events = call.handshake.events(), .revents = 0});
  }
  return polled;
}

void MeshConnector::advance_calls() {
  for (auto call = calls_.begin(); call != calls_.end();) {
    const bool may_call = Clock::now() >= call->again;
    auto& handshake = call->handshake;
    if (handshake.state() == Handshake::State::failed && may_call) handshake = dial(call->peer, call->channel);
    if (is_ready(handshake)) handshake.advance();  // a connection under way has no error to show yet
    if (handshake.state() == Handshake::State::done) {
      keep(call->peer, call->channel, handshake);
      call = calls_.erase(call);
      continue;
    }
    if (handshake.state() == Handshake::State::failed && may_call) {
      call->again = Clock::now() + kCallAgainAfter;
      troubles_[static_cast<std::size_t>(call->peer)] = handshake.trouble();
    }
    ++call;
  }
}

Handshake::Verdict MeshConnector::judge(const Hello& hello) const {
  if (hello.group != plan_.key.id) return {.trouble = "it belongs to another job or group"};
  const bool known = hello.from < plan_.addresses.size() && hello.channel <= Channel::control;
  if (!known || hello.to != static_cast<std::uint32_t>(plan_.rank)) {
    return {.trouble = "it looks for a rank that is not here"};
  }
  return {.secret = plan_.key.secret};
}

std::string MeshConnector::admit(Handshake& caller) {
  const auto& hello = caller.hello();
  const int peer = static_cast<int>(hello.from);
  if (peer <= plan_.rank || is_here(peer, hello.channel)) {
    return text("it says that it is rank ", peer, ", which has connected already");
  }
  caller.welcome();
  if (caller.state() != Handshake::State::done) return caller.trouble();
  keep(peer, hello.channel, caller);
  return {};
}

bool MeshConnector::is_here(int peer, Channel channel) const {
  const auto& link = links_[static_cast<std::size_t>(peer)];
  return (channel == Channel::data ? link.data : link.control).is_open();
}

void MeshConnector::keep(int peer, Channel channel, Handshake& handshake) {
  auto& link = links_[static_cast<std::size_t>(peer)];
  (channel == Channel::data ? link.data_secret : link.control_secret) = handshake.session_secret();
  (channel == Channel::data ? link.data : link.control) = handshake.take_socket();
  --missing_;
}

std::string MeshConnector::missing_peers() const {
  std::vector<std::string> missing;
  for (std::size_t peer = 0; peer < links_.size(); ++peer) {
    const auto& link = links_[peer];
    if (static_cast<int>(peer) == plan_.rank || (link.data.is_open() && link.control.is_open())) continue;
    const auto& trouble = troubles_[peer];
    missing.push_back(text("rank ", peer, " at ", plan_.addresses[peer], trouble.empty() ? "" : " (" + trouble + ")"));
  }
  constexpr std::size_t kMaxNamed = 8;
  if (missing.size() > kMaxNamed) {
    missing.resize(kMaxNamed);
    missing.emplace_back("...");
  }
  return join(missing, ", ");
}

}  // namespace libtrain::detail
