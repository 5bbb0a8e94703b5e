#pragma once

#include <cstddef>
#include <deque>

#include <libtrain/comm/detail/tcp/mesh.hpp>

namespace libtrain::detail {

/// Concurrent sends and receives of one collective: queued data is sent while this rank receives, so that a ring of
/// ranks cannot deadlock.
class Exchange {
 public:
  Exchange(Mesh& mesh, const WaitPolicy& policy) : mesh_(mesh), policy_(policy) {}

  /// Queues `bytes` bytes, which must not change until `finish` or a sufficient `limit`.
  void send(int peer, const void* data, std::size_t bytes);

  /// Returns when `data` is complete.
  void receive(int peer, void* data, std::size_t bytes);

  /// Returns when at most `pieces` queued pieces are not sent yet. Receives no data meanwhile: do not call it if all
  /// ranks could wait here for each other.
  void limit(std::size_t pieces);

  /// Returns when everything is sent.
  void finish() { limit(0); }

 private:
  struct Piece {
    int peer;
    const char* data;
    std::size_t bytes;
  };

  bool push();
  void rest(int sender, bool moved);

  Mesh& mesh_;
  const WaitPolicy& policy_;
  std::deque<Piece> pending_;
  Deadline::Clock::time_point idle_since_ = {};
};

}  // namespace libtrain::detail
