#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/tcp/tcp_transport.hpp>

namespace libtrain::testing {

/// Notes in the memory of this process.
class MemoryRendezvous : public Rendezvous {
 public:
  void set(const std::string& key, const std::string& bytes, const Deadline& /*deadline*/) override {
    const std::lock_guard lock(mutex_);
    if (!notes_.emplace(key, bytes).second) throw EnvironmentError(text(key, " is there already."));
    changed_.notify_all();
  }

  std::string get(const std::string& key, const Deadline& deadline) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, deadline.time_point(), [&] { return notes_.contains(key); })) {
      throw CommunicationError(text(key, " was not registered."));
    }
    return notes_.at(key);
  }

  void replace(const std::string& key, const std::string& bytes) noexcept override {
    const std::lock_guard lock(mutex_);
    notes_[key] = bytes;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> notes_;
};

inline Patience patience(std::chrono::milliseconds time = std::chrono::seconds(60)) {
  return {.deadline = Deadline::after(time)};
}

using TcpBody = std::function<void(HostTransport&)>;

inline void join_all(std::vector<std::thread>& threads) {
  for (auto& thread : threads) thread.join();
}

/// Runs `body` on `world_size` ranks that are threads, connected over loopback.
inline void on_tcp_ranks(int world_size, const TcpBody& body) {
  MemoryRendezvous rendezvous;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto transport = TcpTransport::connect(rendezvous, rank, world_size, {}, patience());
      body(*transport);
    });
  }
  join_all(threads);
}

/// The message of the CommunicationError that `call` throws; empty where it throws none.
template <typename Call>
std::string failure_of(const Call& call) {
  try {
    call();
  } catch (const CommunicationError& error) {
    return error.what();
  }
  return {};
}

}  // namespace libtrain::testing
