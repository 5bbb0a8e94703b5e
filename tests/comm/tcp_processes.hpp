#pragma once

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include <tests/comm/tcp_ranks.hpp>
#include <tests/support/fork_child.hpp>

namespace libtrain::testing {

/// Notes in a page that forked processes share.
class SharedRendezvous : public Rendezvous {
 public:
  SharedRendezvous() {
    void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw EnvironmentError("mmap failed.");
    board_ = new (memory) Board;
    pthread_mutexattr_t mutex;
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&board_->mutex, &mutex);
    pthread_condattr_t condition;
    pthread_condattr_init(&condition);
    pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&board_->changed, &condition);
  }
  ~SharedRendezvous() override { munmap(board_, sizeof(Board)); }
  SharedRendezvous(const SharedRendezvous&) = delete;  // one mapping
  SharedRendezvous& operator=(const SharedRendezvous&) = delete;

  void set(const std::string& key, const std::string& bytes, const Deadline& /*deadline*/) override {
    pthread_mutex_lock(&board_->mutex);
    auto& note = board_->notes.at(board_->used++);
    std::strncpy(note.key.data(), key.c_str(), note.key.size() - 1);
    std::memcpy(note.bytes.data(), bytes.data(), bytes.size());
    note.size = bytes.size();
    pthread_cond_broadcast(&board_->changed);
    pthread_mutex_unlock(&board_->mutex);
  }

  std::string get(const std::string& key, const Deadline& /*deadline*/) override {
    std::optional<std::string> found;
    pthread_mutex_lock(&board_->mutex);
    while (!(found = find(key))) pthread_cond_wait(&board_->changed, &board_->mutex);
    pthread_mutex_unlock(&board_->mutex);
    return *found;
  }

 private:
  struct Note {
    std::array<char, 64> key{};
    std::array<char, 512> bytes{};
    std::size_t size = 0;
  };
  struct Board {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    std::size_t used = 0;
    std::array<Note, 64> notes;
  };

  std::optional<std::string> find(const std::string& key) const {
    for (std::size_t index = 0; index < board_->used; ++index) {
      const auto& note = board_->notes[index];
      if (key == note.key.data()) return std::string{note.bytes.data(), note.size};
    }
    return std::nullopt;
  }

  Board* board_;
};

/// What a rank's process says about its part, whatever happens in it.
inline std::string run_rank(Rendezvous& rendezvous, int rank, int world_size,
                            const std::function<std::string(HostTransport&)>& body) {
  try {
    return body(*TcpTransport::connect(rendezvous, rank, world_size, {}, patience()));
  } catch (const std::exception& error) {
    return text("thrown: ", error.what());
  }
}

/// Ranks that are processes, so that they can be killed and stopped. Element r of the result is what `body` returned on
/// rank r, as soon as all ranks but `lost` have ended; nothing for `lost`, which is killed then.
inline std::vector<std::string> on_tcp_processes(int world_size, int lost,
                                                 const std::function<std::string(HostTransport&)>& body) {
  SharedRendezvous rendezvous;
  struct Child {
    pid_t pid;
    int output;
  };
  std::vector<Child> children;
  for (int rank = 0; rank < world_size; ++rank) {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) throw EnvironmentError("pipe failed.");
    const pid_t pid = fork_child();
    if (pid == 0) {
      alarm(60);
      const auto result = run_rank(rendezvous, rank, world_size, body);
      static_cast<void>(!write(ends[1], result.data(), result.size()));
      _exit(0);
    }
    close(ends[1]);
    children.push_back({.pid = pid, .output = ends[0]});
  }
  std::vector<std::string> results;
  for (int rank = 0; rank < world_size; ++rank) {
    std::array<char, 1024> buffer{};
    const auto got =
        rank == lost ? 0 : read(children[static_cast<std::size_t>(rank)].output, buffer.data(), buffer.size());
    results.emplace_back(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  }
  for (const auto& child : children) {
    kill(child.pid, SIGKILL);
    waitpid(child.pid, nullptr, 0);
    close(child.output);
  }
  return results;
}

}  // namespace libtrain::testing
