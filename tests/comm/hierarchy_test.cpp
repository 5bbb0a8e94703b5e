// How the ranks of one host are connected, and how their job ends. Values: collectives_test.cpp.

#include <libtrain/comm/detail/hierarchy/hierarchical_transport.hpp>

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <libtrain/comm/detail/shared_memory/shared_memory_transport.hpp>
#include <libtrain/comm/threads/detail/thread_group.hpp>
#include <libtrain/comm/threads/detail/thread_transport.hpp>

#include <tests/comm/wait_policy.hpp>

namespace libtrain {
namespace {

using test::wait_policy;

// A launcher's transport, which can end the job.
class JobTransport : public detail::ThreadTransport {
 public:
  JobTransport(std::shared_ptr<detail::ThreadGroup> group, int rank, std::atomic<int>& job_code,
               std::atomic<int>& alive)
      : detail::ThreadTransport(std::move(group), rank), job_code_(job_code), alive_(alive) {
    ++alive_;
  }
  ~JobTransport() override { --alive_; }
  void end_job(const std::string& reason, ExitCode code) noexcept override {
    abort(reason);
    job_code_ = static_cast<int>(code);
  }

 private:
  std::atomic<int>& job_code_;
  std::atomic<int>& alive_;
};

TEST(OneHost, SharesMemoryAlsoAfterASplitAndEndsTheJobOfItsLauncher) {
  constexpr int kRanks = 3;
  const auto group = std::make_shared<detail::ThreadGroup>(kRanks);
  std::atomic<int> job_code = 0;
  std::atomic<int> alive = 0;
  const auto body = [&](int rank) {
    auto transport = detail::HierarchicalTransport::connect(
        std::make_unique<JobTransport>(group, rank, job_code, alive), {.host = "this one"}, wait_policy());
    EXPECT_NE(dynamic_cast<detail::SharedMemoryTransport*>(transport.get()), nullptr);
    EXPECT_EQ(transport->describe(), "3 ranks on 1 host: shared memory");
    detail::barrier(*transport, wait_policy());
    const auto part = transport->split(rank == 1 ? 1 : 0, 0, wait_policy());
    EXPECT_NE(dynamic_cast<detail::SharedMemoryTransport*>(part.get()), nullptr);
    EXPECT_EQ(part->world_size(), rank == 1 ? 1 : 2);
    detail::barrier(*transport, wait_policy());
    // The launcher's transport lives as long as a part does.
    transport.reset();
    EXPECT_GT(alive, 0);
    if (rank == 2) part->end_job("enough", ExitCode::usage);
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) threads.emplace_back(body, rank);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(job_code, static_cast<int>(ExitCode::usage));
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace libtrain
