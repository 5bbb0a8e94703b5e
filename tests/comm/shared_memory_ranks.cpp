#include <tests/comm/shared_memory_ranks.hpp>

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <ctime>
#include <new>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include <libtrain/comm/detail/shared_memory/shared_memory_transport.hpp>

#include <tests/support/fork_child.hpp>

namespace libtrain::test {

namespace {

constexpr std::size_t kMaxBytes = 4096;
constexpr unsigned kMaxChildSeconds = 200;

}  // namespace

struct SharedTable::Content {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int arrived = 0;
  int generation = 0;
  char bytes[8][kMaxBytes]{};
};

class TableTransport : public HostTransport {
 public:
  TableTransport(SharedTable& table, int rank) : table_(table), rank_(rank) {}

  int rank() const override { return rank_; }
  int world_size() const override { return table_.world_size_; }
  std::string_view name() const override { return "table"; }

  bool arrive(const Arrival&, const WaitPolicy&) override {
    table_.wait();
    return true;
  }
  void all_gather(const void* input, void* output, std::size_t bytes, const WaitPolicy&) override {
    if (bytes > kMaxBytes) throw std::logic_error("more than the table holds");
    std::memcpy(table_.content_->bytes[rank_], input, bytes);
    table_.wait();
    for (int rank = 0; rank < world_size(); ++rank) {
      std::memcpy(static_cast<char*>(output) + static_cast<std::size_t>(rank) * bytes, table_.content_->bytes[rank],
                  bytes);
    }
    table_.wait();
  }

  void all_reduce(const void*, void*, std::size_t, DataType, ReduceOp, const WaitPolicy&) override { refuse(); }
  void reduce(const void*, void*, std::size_t, DataType, ReduceOp, int, const WaitPolicy&) override { refuse(); }
  void broadcast(void*, std::size_t, int, const WaitPolicy&) override { refuse(); }
  void reduce_scatter(const void*, void*, std::size_t, DataType, ReduceOp, const WaitPolicy&) override { refuse(); }
  void all_to_all(const void*, void*, std::size_t, const WaitPolicy&) override { refuse(); }
  std::unique_ptr<HostTransport> split(int, int, const WaitPolicy&) override { refuse(); }
  void abort(const std::string&) noexcept override {}

 private:
  [[noreturn]] static void refuse() { throw std::logic_error("only all_gather is expected"); }

  SharedTable& table_;
  int rank_;
};

SharedTable::SharedTable(int world_size) : world_size_(world_size) {
  void* memory = mmap(nullptr, sizeof(Content), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  content_ = new (memory) Content;
  pthread_mutexattr_t mutex_attributes;
  pthread_mutexattr_init(&mutex_attributes);
  pthread_mutexattr_setpshared(&mutex_attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&content_->mutex, &mutex_attributes);
  pthread_condattr_t condition_attributes;
  pthread_condattr_init(&condition_attributes);
  pthread_condattr_setpshared(&condition_attributes, PTHREAD_PROCESS_SHARED);
  pthread_cond_init(&content_->changed, &condition_attributes);
}

SharedTable::~SharedTable() {
  munmap(content_, sizeof(Content));
}

std::unique_ptr<HostTransport> SharedTable::rank(int rank) {
  return std::make_unique<TableTransport>(*this, rank);
}

void SharedTable::wait() {
  timespec limit{};
  clock_gettime(CLOCK_REALTIME, &limit);
  limit.tv_sec += 20;
  pthread_mutex_lock(&content_->mutex);
  const int generation = content_->generation;
  if (++content_->arrived == world_size_) {
    content_->arrived = 0;
    ++content_->generation;
    pthread_cond_broadcast(&content_->changed);
  }
  int result = 0;
  while (content_->generation == generation && result == 0) {
    result = pthread_cond_timedwait(&content_->changed, &content_->mutex, &limit);
  }
  const bool all_arrived = content_->generation != generation;
  pthread_mutex_unlock(&content_->mutex);
  if (!all_arrived) throw std::runtime_error("a rank of the test did not arrive at the barrier of the table");
}

void sum_up(HostTransport& transport, float* data, std::size_t count) {
  transport.arrive({.fingerprint = 1, .input = data, .output = data}, wait_policy());
  transport.all_reduce(data, data, count, DataType::float32, ReduceOp::sum, wait_policy());
}

void on_threads(int world_size, const TransportBody& body) {
  SharedTable table{world_size};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&table, &body, rank] {
      try {
        const auto base = table.rank(rank);
        const auto transport = detail::SharedMemoryTransport::connect(*base, wait_policy());
        body(*transport);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

std::vector<pid_t> fork_ranks(int world_size, const std::function<void(int)>& body) {
  std::vector<pid_t> processes;
  for (int rank = 0; rank < world_size; ++rank) {
    processes.push_back(fork_child());
    if (processes.back() != 0) continue;
    alarm(kMaxChildSeconds);
    try {
      body(rank);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << rank << ": " << error.what();
    }
    std::fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  return processes;
}

std::vector<int> wait_for(const std::vector<pid_t>& processes) {
  std::vector<int> results;
  for (const auto process : processes) {
    int status = 0;
    waitpid(process, &status, 0);
    results.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  return results;
}

std::vector<int> on_processes(int world_size, const TransportBody& body) {
  SharedTable table{world_size};
  return wait_for(fork_ranks(world_size, [&](int rank) {
    const auto base = table.rank(rank);
    const auto transport = detail::SharedMemoryTransport::connect(*base, wait_policy());
    body(*transport);
  }));
}

}  // namespace libtrain::test
