#include <libtrain/comm/detail/tcp/exchange.hpp>

#include <algorithm>
#include <thread>

namespace libtrain::detail {

namespace {

// This much stays in the cache while the other direction is served.
constexpr std::size_t kMaxSendBytes = std::size_t{256} << 10;

// A message over loopback or a fast network arrives within this time; a sleep costs as much. The core is yielded
// meanwhile, because the peer may need it.
constexpr std::chrono::microseconds kSpinTime{30};

}  // namespace

void Exchange::send(int peer, const void* data, std::size_t bytes) {
  if (bytes == 0) return;
  pending_.push_back({.peer = peer, .data = static_cast<const char*>(data), .bytes = bytes});
  if (pending_.size() == 1) push();
}

void Exchange::receive(int peer, void* data, std::size_t bytes) {
  auto* target = static_cast<char*>(data);
  while (bytes > 0) {
    const bool sent = push();
    const auto got = mesh_.try_receive(peer, target, bytes);
    target += got;
    bytes -= got;
    if (bytes > 0) rest(peer, sent || got > 0);
  }
}

void Exchange::limit(std::size_t pieces) {
  while (pending_.size() > pieces) rest(LivenessCheck::kNoRank, push());
}

bool Exchange::push() {
  if (pending_.empty()) return false;
  auto& piece = pending_.front();
  const auto sent = mesh_.try_send(piece.peer, piece.data, std::min(piece.bytes, kMaxSendBytes));
  piece.data += sent;
  piece.bytes -= sent;
  if (piece.bytes == 0) pending_.pop_front();
  return sent > 0;
}

void Exchange::rest(int sender, bool moved) {
  if (moved) {
    idle_since_ = {};
    return;
  }
  if (policy_.has_waiters()) {
    const auto now = Deadline::Clock::now();
    if (idle_since_ == Deadline::Clock::time_point{}) idle_since_ = now;
    if (now - idle_since_ < kSpinTime) return std::this_thread::yield();
  }
  mesh_.wait(pending_.empty() ? LivenessCheck::kNoRank : pending_.front().peer, sender, policy_.deadline);
  idle_since_ = {};
}

}  // namespace libtrain::detail
