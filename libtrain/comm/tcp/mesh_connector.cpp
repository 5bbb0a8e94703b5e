#include <libtrain/comm/tcp/mesh_connector.hpp>

#include <algorithm>
#include <cerrno>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

constexpr std::chrono::milliseconds kCallAgainAfter{50};
constexpr std::chrono::milliseconds kLongestPoll{50};
constexpr std::chrono::seconds kGuestTime{10};
constexpr std::size_t kMostStrangers = 16;

}  // namespace

MeshConnector::MeshConnector(const MeshPlan& plan, Descriptor listener)
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
    accept_guests();
    advance_guests();
    if (missing_ > 0 && deadline.expired()) throw_missing();
  }
  return std::move(links_);
}

Handshake MeshConnector::dial(int peer, Channel channel) const {
  const auto& address = plan_.addresses[static_cast<std::size_t>(peer)];
  const auto parsed = SocketAddress::parse(address);
  if (!parsed) throw CommunicationError(text("Rank ", peer, " gave '", address, "' as its address."));
  return Handshake::call(begin_connect(*parsed), plan_.key, plan_.rank, peer, channel);
}

std::vector<pollfd> MeshConnector::interests() const {
  std::vector<pollfd> polled;
  polled.push_back({.fd = listener_.get(), .events = POLLIN, .revents = 0});
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
    const auto now = Clock::now();
    if (call->handshake.state() == Handshake::State::failed) {
      if (now >= call->again) call->handshake = dial(call->peer, call->channel);
      ++call;
      continue;
    }
    pollfd ready{.fd = call->handshake.descriptor(), .events = call->handshake.events(), .revents = 0};
    const bool waits = poll(&ready, 1, 0) == 0;  // a connection under way has no error to show yet
    const auto state = waits ? Handshake::State::underway : call->handshake.advance();
    if (state == Handshake::State::done) {
      place(call->peer, call->channel) = call->handshake.take_socket();
      --missing_;
      call = calls_.erase(call);
      continue;
    }
    if (state == Handshake::State::failed) {
      call->again = now + kCallAgainAfter;
      troubles_[static_cast<std::size_t>(call->peer)] = call->handshake.trouble();
    }
    ++call;
  }
}

void MeshConnector::accept_guests() {
  SocketAddress remote;
  for (auto socket = accept_from(listener_, remote); socket.valid(); socket = accept_from(listener_, remote)) {
    // The oldest has had its time: members need one round trip, so a flood of strangers cannot keep them out.
    if (guests_.size() >= static_cast<std::size_t>(missing_) + kMostStrangers) {
      drop(guests_.front().address, "too many others knocked while it was silent");
      guests_.pop_front();
    }
    guests_.push_back({.handshake = Handshake::answer(std::move(socket), plan_.key, plan_.rank,
                                                      static_cast<int>(plan_.addresses.size())),
                       .address = remote.name(),
                       .leave_at = Clock::now() + kGuestTime});
  }
}

void MeshConnector::advance_guests() {
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    const auto state = guest->handshake.advance();
    if (state == Handshake::State::underway && Clock::now() < guest->leave_at) {
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
  if (peer <= plan_.rank || place(peer, hello.channel).valid()) {
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

Descriptor& MeshConnector::place(int peer, Channel channel) {
  auto& link = links_[static_cast<std::size_t>(peer)];
  return channel == Channel::data ? link.data : link.control;
}

void MeshConnector::throw_missing() const {
  std::vector<std::string> missing;
  for (std::size_t peer = 0; peer < links_.size(); ++peer) {
    const auto& link = links_[peer];
    if (static_cast<int>(peer) == plan_.rank || (link.data.valid() && link.control.valid())) continue;
    const auto& trouble = troubles_[peer];
    missing.push_back(text("rank ", peer, " at ", plan_.addresses[peer], trouble.empty() ? "" : " (" + trouble + ")"));
  }
  throw CommunicationError(text("Not connected before the deadline: ", join(missing, ", "),
                                ". Those processes ended or are stopped, or a firewall is between the hosts."));
}

}  // namespace libtrain::detail
