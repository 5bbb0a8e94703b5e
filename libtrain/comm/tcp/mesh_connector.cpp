#include <libtrain/comm/tcp/mesh_connector.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

constexpr std::chrono::milliseconds kCallAgainAfter{50};
constexpr std::chrono::milliseconds kLongestPoll{50};
constexpr std::chrono::seconds kGuestTime{10};
// A round trip, also over slow networks and to a busy process.
constexpr std::chrono::milliseconds kHelloTime{250};
constexpr std::size_t kMostStrangers = 16;
// Calls, guests and the deadline must have their turn between any two of these.
constexpr int kMostAcceptedAtOnce = 16;

bool is_ready(const Handshake& handshake) {
  if (handshake.state() != Handshake::State::underway) return false;
  pollfd ready{.fd = handshake.descriptor(), .events = handshake.events(), .revents = 0};
  return poll(&ready, 1, 0) != 0;
}

}  // namespace

MeshConnector::MeshConnector(const MeshPlan& plan, FileDescriptor listener)
    : plan_(plan),
      listener_(std::move(listener)),
      links_(plan.addresses.size()),
      troubles_(plan.addresses.size()),
      missing_(2 * (static_cast<int>(plan.addresses.size()) - 1)) {
  for (int peer = 0; peer < plan_.rank; ++peer) {
    for (const auto channel : {Channel::data, Channel::control}) {
      calls_.push_back({.peer = peer, .channel = channel, .handshake = dial(peer, channel)});
    }
  }
}

std::vector<Link> MeshConnector::connect(const Deadline& deadline, const std::function<void()>& look) {
  while (missing_ > 0) {
    look();
    auto polled = interests();
    const auto patience = std::min<Clock::duration>(deadline.remaining(), kLongestPoll);
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(patience).count();
    if (poll(polled.data(), polled.size(), static_cast<int>(milliseconds)) < 0 && errno != EINTR) {
      throw_system_error("poll");
    }
    advance_calls();
    // Who has said something is heard before a newcomer can take the place of anybody.
    advance_guests();
    accept_guests();
    if (missing_ > 0 && deadline.expired()) throw_missing();
  }
  return std::move(links_);
}

Handshake MeshConnector::dial(int peer, Channel channel) const {
  const auto& address = plan_.addresses[static_cast<std::size_t>(peer)];
  const auto parsed = SocketAddress::parse(address);
  if (!parsed) throw CommunicationError(text("Rank ", peer, " gave '", address, "' as its address."));
  auto socket = begin_connect(*parsed);
  if (!socket.is_open()) return Handshake::failed(std::strerror(errno));
  return Handshake::call(std::move(socket), plan_.key, plan_.rank, peer, channel);
}

std::vector<pollfd> MeshConnector::interests() const {
  std::vector<pollfd> polled;
  if (!is_full() || dispensable() != guests_.end()) {
    polled.push_back({.fd = listener_.get(), .events = POLLIN, .revents = 0});
  }
  const auto add = [&](const Handshake& handshake) {
    if (handshake.state() != Handshake::State::underway) return;
    polled.push_back({.fd = handshake.descriptor(), .events = handshake.events(), .revents = 0});
  };
  for (const auto& call : calls_) add(call.handshake);
  for (const auto& guest : guests_) add(guest.handshake);
  return polled;
}

void MeshConnector::advance_calls() {
  for (auto call = calls_.begin(); call != calls_.end();) {
    const bool may_call = Clock::now() >= call->again;
    auto& handshake = call->handshake;
    if (handshake.state() == Handshake::State::failed && may_call) handshake = dial(call->peer, call->channel);
    if (is_ready(handshake)) handshake.advance();  // a connection under way has no error to show yet
    if (handshake.state() == Handshake::State::done) {
      place(call->peer, call->channel) = handshake.take_socket();
      --missing_;
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

void MeshConnector::accept_guests() {
  for (int count = 0; count < kMostAcceptedAtOnce; ++count) {
    const auto leaves = is_full() ? dispensable() : guests_.cend();
    if (is_full() && leaves == guests_.cend()) return;
    SocketAddress remote;
    auto socket = accept_from(listener_, remote);
    if (!socket.is_open()) return;
    if (leaves != guests_.cend()) {
      drop(leaves->address, "others knocked while it had proven nothing");
      guests_.erase(leaves);
    }
    guests_.push_back({.handshake = Handshake::answer(std::move(socket), plan_.key, plan_.rank,
                                                      static_cast<int>(plan_.addresses.size())),
                       .address = remote.name(),
                       .came_at = Clock::now()});
  }
}

bool MeshConnector::is_full() const {
  return guests_.size() >= static_cast<std::size_t>(missing_) + kMostStrangers;
}

// Whose place a newcomer may take. A Hello names the group by random bytes that few strangers can have seen.
MeshConnector::Guests::const_iterator MeshConnector::dispensable() const {
  const auto had_time = [now = Clock::now()](const Guest& guest) { return now >= guest.came_at + kHelloTime; };
  const auto greeted = [](const Guest& guest) { return guest.handshake.greeted(); };
  // In the order in which they came. While some are silent, those who have greeted stay.
  const auto oldest_silent = std::find_if_not(guests_.begin(), guests_.end(), greeted);
  const auto candidate = oldest_silent != guests_.end() ? oldest_silent : guests_.begin();
  return candidate != guests_.end() && had_time(*candidate) ? candidate : guests_.end();
}

void MeshConnector::advance_guests() {
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    const auto state = guest->handshake.advance();
    if (state == Handshake::State::underway && Clock::now() < guest->came_at + kGuestTime) {
      ++guest;
      continue;
    }
    if (state == Handshake::State::proven) {
      admit(*guest);
    } else {
      drop(guest->address, state == Handshake::State::failed ? guest->handshake.trouble() : "it stayed silent");
    }
    guest = guests_.erase(guest);
  }
}

void MeshConnector::admit(Guest& guest) {
  const auto& hello = guest.handshake.hello();
  const int peer = static_cast<int>(hello.from);
  if (peer <= plan_.rank || place(peer, hello.channel).is_open()) {
    return drop(guest.address, text("it says that it is rank ", peer, ", which is here already"));
  }
  guest.handshake.welcome();
  if (guest.handshake.state() != Handshake::State::done) return drop(guest.address, guest.handshake.trouble());
  place(peer, hello.channel) = guest.handshake.take_socket();
  --missing_;
}

// One warning is enough to start looking; a port scan must not fill the log.
void MeshConnector::drop(const std::string& address, const std::string& trouble) {
  const auto level = warned_ ? LogLevel::debug : LogLevel::warning;
  warned_ = true;
  log_message(level, text("Dropped a connection from ", address, " while the ranks were connecting: ", trouble, "."));
}

FileDescriptor& MeshConnector::place(int peer, Channel channel) {
  auto& link = links_[static_cast<std::size_t>(peer)];
  return channel == Channel::data ? link.data : link.control;
}

void MeshConnector::throw_missing() const {
  std::vector<std::string> missing;
  for (std::size_t peer = 0; peer < links_.size(); ++peer) {
    const auto& link = links_[peer];
    if (static_cast<int>(peer) == plan_.rank || (link.data.is_open() && link.control.is_open())) continue;
    const auto& trouble = troubles_[peer];
    missing.push_back(text("rank ", peer, " at ", plan_.addresses[peer], trouble.empty() ? "" : " (" + trouble + ")"));
  }
  throw CommunicationError(text("Not connected before the deadline: ", join(missing, ", "),
                                ". Those processes ended or are stopped, or a firewall is between the hosts."));
}

}  // namespace libtrain::detail
