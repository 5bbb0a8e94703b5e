#include <libtrain/comm/detail/tcp/pending_connections.hpp>

#include <algorithm>

#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

constexpr std::chrono::seconds kHandshakeTimeout{10};
// Enough for a round trip over a slow network to a busy process.
constexpr std::chrono::milliseconds kHelloTime{250};
constexpr int kMaxUnexpectedConnections = 16;
// Other work of the caller, handshakes and the deadline must not starve.
constexpr int kMaxAcceptedAtOnce = 16;

}  // namespace

void PendingConnections::add_interests(std::vector<pollfd>& polled, int expected) const {
  if (!is_full(expected) || replaceable() != pending_.end()) {
    polled.push_back({.fd = listener_.get(), .events = POLLIN, .revents = 0});
  }
  for (const auto& pending : pending_) {
    polled.push_back({.fd = pending.handshake.descriptor(), .events = pending.handshake.events(), .revents = 0});
  }
}

void PendingConnections::advance(int expected, const Admit& admit) {
  // Messages that have arrived are read before a new connection can replace one.
  for (auto pending = pending_.begin(); pending != pending_.end();) {
    auto& handshake = pending->handshake;
    const auto state = handshake.advance();
    if (state == Handshake::State::underway && Clock::now() < pending->accepted_at + kHandshakeTimeout) {
      ++pending;
      continue;
    }
    if (state == Handshake::State::underway) {
      drop(pending->address, "it did not authenticate in time");
    } else {
      const auto reason = state == Handshake::State::failed ? handshake.reason() : admit(handshake, pending->address);
      if (!reason.empty()) drop(pending->address, reason);
    }
    pending = pending_.erase(pending);
  }
  accept(expected);
}

void PendingConnections::accept(int expected) {
  for (int count = 0; count < kMaxAcceptedAtOnce; ++count) {
    const auto replaced = is_full(expected) ? replaceable() : pending_.cend();
    if (is_full(expected) && replaced == pending_.cend()) return;
    SocketAddress remote;
    auto socket = accept_from(listener_, remote);
    if (!socket.is_open()) return;
    if (replaced != pending_.cend()) {
      drop(replaced->address, "it had not authenticated when newer connections took its place");
      pending_.erase(replaced);
    }
    const auto check = [this, remote](const Hello& hello) { return check_hello_(hello, remote); };
    pending_.push_back({.handshake = Handshake::answer(std::move(socket), check),
                        .address = remote.name(),
                        .accepted_at = Clock::now()});
  }
}

bool PendingConnections::is_full(int expected) const {
  return pending_.size() >= static_cast<std::size_t>(expected + kMaxUnexpectedConnections);
}

// The connection that a new one may replace. Few other processes can know what a valid Hello contains.
PendingConnections::List::const_iterator PendingConnections::replaceable() const {
  const auto latest = Clock::now() - kHelloTime;
  const auto had_time = [latest](const Pending& pending) { return pending.accepted_at <= latest; };
  const auto greeted = [](const Pending& pending) { return pending.handshake.greeted(); };
  // The list begins with the oldest. Those that have sent a valid Hello stay while others have sent none.
  const auto oldest_silent = std::find_if_not(pending_.begin(), pending_.end(), greeted);
  const auto candidate = oldest_silent != pending_.end() ? oldest_silent : pending_.begin();
  return candidate != pending_.end() && had_time(*candidate) ? candidate : pending_.end();
}

// One warning is enough; a port scan must not fill the log.
void PendingConnections::drop(const std::string& address, const std::string& reason) {
  const auto level = warned_ ? LogLevel::debug : LogLevel::warning;
  warned_ = true;
  log_message(level, text("Dropped a connection from ", address, " while the ranks were connecting: ", reason, "."));
}

}  // namespace libtrain::detail
