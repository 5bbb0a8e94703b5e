#pragma once

#include <cstddef>
#include <deque>

#include <libtrain/comm/detail/tcp/mesh.hpp>

namespace libtrain::detail {

/// Sends and receives of one collective, under way at the same time: what is queued for sending moves on while this
/// rank receives, so that no ring of ranks can block itself.
class Exchange {
 public:
  Exchange(Mesh& mesh, const WaitPolicy& policy) : mesh_(mesh), policy_(policy) {}

  /// Queues `bytes` bytes, which must stay as they are until `finish` or a sufficient `limit`.
  void send(int peer, const void* data, std::size_t bytes);

  /// Returns when `data` is complete.
  void receive(int peer, void* data, std::size_t bytes);

  /// Returns when at most `pieces` of the queued ones are not sent yet. Receives nothing meanwhile: do not call it
  /// where all ranks might wait here for each other.
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
