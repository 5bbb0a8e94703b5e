#include <libtrain/comm/detail/tcp/pending_connections.hpp>

#include <algorithm>

#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

constexpr std::chrono::seconds kLongestStay{10};
// A round trip, also over slow networks and to a busy process.
constexpr std::chrono::milliseconds kHelloTime{250};
constexpr int kMaxStrangers = 16;
// Callers, handshakes and the deadline must have their turn between any two of these.
constexpr int kMaxAcceptedAtOnce = 16;

}  // namespace

void PendingConnections::add_interests(std::vector<pollfd>& polled, int expected) const {
  if (!is_full(expected) || dispensable() != pending_.end()) {
    polled.push_back({.fd = listener_.get(), .events = POLLIN, .revents = 0});
  }
  for (const auto& pending : pending_) {
    polled.push_back({.fd = pending.handshake.descriptor(), .events = pending.handshake.events(), .revents = 0});
  }
}

void PendingConnections::advance(int expected, const Admit& admit) {
  // What has been said is heard before a newcomer can take a place.
  for (auto pending = pending_.begin(); pending != pending_.end();) {
    auto& handshake = pending->handshake;
    const auto state = handshake.advance();
    if (state == Handshake::State::underway && Clock::now() < pending->came_at + kLongestStay) {
      ++pending;
      continue;
    }
    if (state == Handshake::State::underway) {
      drop(pending->address, "it stayed silent");
    } else {
      const auto trouble = state == Handshake::State::failed ? handshake.trouble() : admit(handshake, pending->address);
      if (!trouble.empty()) drop(pending->address, trouble);
    }
    pending = pending_.erase(pending);
  }
  accept(expected);
}

void PendingConnections::accept(int expected) {
  for (int count = 0; count < kMaxAcceptedAtOnce; ++count) {
    const auto leaves = is_full(expected) ? dispensable() : pending_.cend();
    if (is_full(expected) && leaves == pending_.cend()) return;
    SocketAddress remote;
    auto socket = accept_from(listener_, remote);
    if (!socket.is_open()) return;
    if (leaves != pending_.cend()) {
      drop(leaves->address, "others connected while it had proven nothing");
      pending_.erase(leaves);
    }
    const auto judge = [this, remote](const Hello& hello) { return judge_(hello, remote); };
    pending_.push_back(
        {.handshake = Handshake::answer(std::move(socket), judge), .address = remote.name(), .came_at = Clock::now()});
  }
}

bool PendingConnections::is_full(int expected) const {
  return pending_.size() >= static_cast<std::size_t>(expected + kMaxStrangers);
}

// Whose place a newcomer may take. Few strangers can have seen what a Hello has to name.
PendingConnections::List::const_iterator PendingConnections::dispensable() const {
  const auto had_time = [now = Clock::now()](const Pending& pending) { return now >= pending.came_at + kHelloTime; };
  const auto greeted = [](const Pending& pending) { return pending.handshake.greeted(); };
  // In the order in which they came. While some are silent, those who have greeted stay.
  const auto oldest_silent = std::find_if_not(pending_.begin(), pending_.end(), greeted);
  const auto candidate = oldest_silent != pending_.end() ? oldest_silent : pending_.begin();
  return candidate != pending_.end() && had_time(*candidate) ? candidate : pending_.end();
}

// One warning is enough to start looking; a port scan must not fill the log.
void PendingConnections::drop(const std::string& address, const std::string& trouble) {
  const auto level = warned_ ? LogLevel::debug : LogLevel::warning;
  warned_ = true;
  log_message(level, text("Dropped a connection from ", address, " while the ranks were connecting: ", trouble, "."));
}

}  // namespace libtrain::detail
