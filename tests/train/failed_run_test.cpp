// A failure that is found while the body does not wait for it.

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <libtrain/comm/threads/run_ranks.hpp>
#include <libtrain/train/detail/failed_run.hpp>

#include <tests/support/log_sinks.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::detail {
namespace {

using test::CapturedLog;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const Failure kLost{ExitCode::communication, ErrorScope::this_rank, "NCCL reports that a peer is lost."};

Launch launch_of(const Communicator& communicator) {
  Launch launch;
  launch.rank.value = communicator.rank();
  launch.world_size.value = communicator.world_size();
  return launch;
}

std::string content_of(const std::filesystem::path& file) {
  std::ifstream stream{file};
  std::ostringstream content;
  content << stream.rdbuf();
  return content.str();
}

TEST(FailedRun, WritesTheCollectivesOfAFailureThatAnotherThreadFinds) {
  const test::TemporaryFolder folder;
  const CapturedLog log{LogLevel::error};
  run_ranks(2, [&](Communicator& communicator) {
    FailedRun failed;
    communicator.all_reduce(torch::ones({3})).wait();
    failed.follow({std::shared_ptr<void>{}, &communicator}, folder.path(), "0123");
    if (communicator.rank() == 0) {
      std::thread([&] {
        failed.report(kLost, launch_of(communicator));
        failed.report(kLost, launch_of(communicator));  // only the first
      }).join();
      EXPECT_THAT(content_of(folder.path() / "collectives.rank0.txt"),
                  AllOf(HasSubstr("run 0123"), HasSubstr("failed: NCCL reports that a peer is lost."),
                        HasSubstr("all_reduce of 3 float32 (sum)")));
    }
    communicator.barrier();
  });
  EXPECT_THAT(log.lines(), SizeIs(1));
  EXPECT_THAT(log.lines(), Contains(AllOf(HasSubstr("rank 0 of 2 on "), HasSubstr("NCCL reports that a peer is lost."),
                                          HasSubstr("collectives.rank*.txt"))));
}

// A communicator for GPUs keeps what it reports to, and its threads must not outlive the run.
TEST(FailedRun, LeavesItsCommunicatorToTheRun) {
  const test::TemporaryFolder folder;
  run_ranks(2, [&](Communicator& communicator) {
    auto failed = std::make_shared<FailedRun>();
    const auto report = FailedRun::reporter(failed, launch_of(communicator));
    auto owned = std::shared_ptr<Communicator>(&communicator, [report](Communicator*) {});
    const std::weak_ptr<Communicator> seen = owned;
    communicator.barrier();
    failed->follow(std::move(owned), folder.path(), "0123");
    EXPECT_FALSE(seen.expired());
    failed.reset();
    EXPECT_TRUE(seen.expired());
    report("This comes after the run.");
    communicator.barrier();
  });
}

}  // namespace
}  // namespace libtrain::detail
