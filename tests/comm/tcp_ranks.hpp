#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/tcp/tcp_rendezvous.hpp>
#include <libtrain/comm/detail/tcp/tcp_transport.hpp>

#include "wait_policy.hpp"

namespace libtrain::test {

/// The rendezvous of the ranks of one test: a listener on loopback, which exists from the start, with its own key.
class LoopbackRendezvous {
 public:
  explicit LoopbackRendezvous(int world_size, const std::string& job = "test")
      : world_size_(world_size), job_(job), key_{.key = detail::GroupKey::random(), .source = "the test"} {
    key_.key.id = detail::open_key(job).id;
  }

  /// For one rank, which may be a thread of this process or a process forked from it.
  std::unique_ptr<detail::Rendezvous> of(int rank) {
    return std::make_unique<detail::TcpRendezvous>(std::make_unique<Endpoint>(*this), plan(rank));
  }

  detail::RendezvousPlan plan(int rank) const {
    return {.job = job_, .rank = rank, .world_size = world_size_, .key = key_, .is_one_host = true};
  }

  const detail::SocketAddress& address() const { return address_; }

 private:
  class Endpoint : public detail::RendezvousEndpoint {
   public:
    explicit Endpoint(LoopbackRendezvous& loopback) : loopback_(loopback) {}
    std::string name() const override { return "tcp://" + loopback_.address_.name(); }
    detail::FileDescriptor serve(const Deadline& /*deadline*/) override { return std::move(loopback_.listener_); }
    std::vector<detail::SocketAddress> find(const Deadline& /*deadline*/) override { return {loopback_.address_}; }

   private:
    LoopbackRendezvous& loopback_;
  };

  int world_size_;
  std::string job_;
  detail::JobKey key_;
  detail::FileDescriptor listener_ =
      detail::listen_at(detail::SocketAddress::parse("127.0.0.1:1").value().with_port(0));
  detail::SocketAddress address_ = detail::local_address(listener_);
};

using TcpBody = std::function<void(HostTransport&)>;

inline void join_all(std::vector<std::thread>& threads) {
  for (auto& thread : threads) thread.join();
}

/// Runs `body` on `world_size` ranks that are threads, connected over loopback.
inline void on_tcp_ranks(int world_size, const TcpBody& body, const detail::TcpOptions& options = {}) {
  LoopbackRendezvous loopback{world_size};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto transport =
          detail::TcpTransport::connect(*loopback.of(rank), rank, world_size, options, wait_policy());
      body(*transport);
    });
  }
  join_all(threads);
}

/// The message of the CommunicationError that `call` throws; empty if it throws none.
template <typename Call>
std::string failure_of(const Call& call) {
  try {
    call();
  } catch (const CommunicationError& error) {
    return error.what();
  }
  return {};
}

}  // namespace libtrain::test
