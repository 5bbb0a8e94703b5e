#include <libtrain/comm/detail/tcp/mesh_connector.hpp>

#include <cerrno>
#include <cstring>

#include <libtrain/base/detail/reminder.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

constexpr std::chrono::milliseconds kMeshRetryInterval{50};

}  // namespace

MeshConnector::MeshConnector(const MeshPlan& plan, FileDescriptor listener)
    : plan_(plan),
      peers_(plan.addresses.size()),
      pending_(std::move(listener), [this](const Hello& hello, const SocketAddress&) { return check_hello(hello); }),
      reasons_(plan.addresses.size()),
      missing_(2 * (static_cast<int>(plan.addresses.size()) - 1)) {
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) peers_[peer].address = plan_.addresses[peer];
  for (int peer = 0; peer < plan_.rank; ++peer) {
    for (const auto channel : {Channel::data, Channel::control}) {
      calls_.push_back({.peer = peer, .channel = channel, .handshake = dial(peer, channel)});
    }
  }
}

std::vector<MeshPeer> MeshConnector::connect(const Deadline& deadline, const std::function<void()>& look) {
  Reminder reminder;
  while (missing_ > 0) {
    look();
    auto polled = interests();
    poll_briefly(polled, deadline);
    advance_calls();
    pending_.advance(missing_, [this](Handshake& caller, const std::string&) { return admit(caller); });
    if (missing_ > 0 && deadline.expired()) {
      throw CommunicationError(text("No connection to ", missing_peers(),
                                    " before the deadline. Check that those processes are running and that all ports "
                                    "are open between the hosts."));
    }
    if (missing_ > 0 && reminder.is_due()) log_warning(text("Still connecting to ", missing_peers(), "."));
  }
  return std::move(peers_);
}

Handshake MeshConnector::dial(int peer, Channel channel) const {
  const auto& address = plan_.addresses[static_cast<std::size_t>(peer)];
  const auto parsed = SocketAddress::parse(address);
  if (!parsed) {
    throw CommunicationError(
        text("Rank ", peer, " sent the invalid address '", address, "'. Start the same program on all ranks."));
  }
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
    if (handshake.advance() == Handshake::State::done) {
      keep(call->peer, call->channel, handshake);
      call = calls_.erase(call);
      continue;
    }
    if (handshake.state() == Handshake::State::failed && may_call) {
      call->again = Clock::now() + kMeshRetryInterval;
      reasons_[static_cast<std::size_t>(call->peer)] = handshake.reason();
    }
    ++call;
  }
}

Handshake::Outcome MeshConnector::check_hello(const Hello& hello) const {
  if (hello.group != plan_.key.id) return {.reason = "it belongs to another job or group"};
  const bool known = hello.from < plan_.addresses.size() && hello.channel <= Channel::control;
  if (!known || hello.to != static_cast<std::uint32_t>(plan_.rank)) {
    return {.reason = "its handshake is for a different rank"};
  }
  return {.secret = plan_.key.secret};
}

std::string MeshConnector::admit(Handshake& caller) {
  const auto& hello = caller.hello();
  const int peer = static_cast<int>(hello.from);
  if (peer <= plan_.rank || is_connected(peer, hello.channel)) {
    return text("rank ", peer, " has already connected");
  }
  caller.welcome();
  if (caller.state() != Handshake::State::done) return caller.reason();
  keep(peer, hello.channel, caller);
  return {};
}

bool MeshConnector::is_connected(int peer, Channel channel) const {
  const auto& connections = peers_[static_cast<std::size_t>(peer)];
  return (channel == Channel::data ? connections.data.socket.get() : connections.control.descriptor()) >= 0;
}

void MeshConnector::keep(int peer, Channel channel, Handshake& handshake) {
  PeerConnection connection{.socket = handshake.take_socket()};
  const auto own = peer < plan_.rank ? Cipher::Direction::from_caller : Cipher::Direction::from_answerer;
  if (plan_.encrypt) connection.stream = std::make_unique<SecureStream>(handshake.session_secret(), own);
  auto& connections = peers_[static_cast<std::size_t>(peer)];
  if (channel == Channel::data) {
    connections.data = std::move(connection);
  } else {
    connections.control = ControlChannel{std::move(connection)};
  }
  --missing_;
}

std::string MeshConnector::missing_peers() const {
  std::vector<std::string> missing;
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
    if (peer == plan_.rank || (is_connected(peer, Channel::data) && is_connected(peer, Channel::control))) continue;
    const auto& reason = reasons_[static_cast<std::size_t>(peer)];
    missing.push_back(text("rank ", peer, " at ", peers_[static_cast<std::size_t>(peer)].address,
                           reason.empty() ? "" : " (" + reason + ")"));
  }
  constexpr std::size_t kMaxNamed = 8;
  if (missing.size() > kMaxNamed) {
    missing.resize(kMaxNamed);
    missing.emplace_back("...");
  }
  return join(missing, ", ");
}

}  // namespace libtrain::detail
