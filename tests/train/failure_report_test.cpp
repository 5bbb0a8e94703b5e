#include <libtrain/train/failure_report.hpp>

#include <signal.h>

#include <new>
#include <stdexcept>
#include <system_error>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <libtrain/base/clock.hpp>

namespace libtrain::detail {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

template <typename Action>
Failure failure_after(const Action& action) {
  try {
    action();
  } catch (...) {
    return current_failure();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(CurrentFailure, LeavesOutTheFramesOfLibTorch) {
  const auto failure = failure_after([] { return torch::ones({2, 3}).matmul(torch::ones({2, 3})); });
  EXPECT_EQ(failure.code, ExitCode::failure);
  EXPECT_EQ(failure.message, "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)");
}

TEST(CurrentFailure, LibTorchsLackOfMemoryIsTheMachines) {
  const auto failure = failure_after([] { return torch::empty({std::int64_t{1} << 60}); });
  EXPECT_EQ(failure.code, ExitCode::environment);
  EXPECT_THAT(failure.message, StartsWith(failure_after([] { throw std::bad_alloc(); }).message));
  EXPECT_THAT(failure.message,
              AllOf(HasSubstr("tried to allocate 4611686018427387904 bytes"), Not(HasSubstr("frame #"))));
}

c10::AcceleratorError cuda_error(int code, const std::string& message) {
  return {c10::SourceLocation{"call", "file.cpp", 1}, code, "CUDA error: " + message + "\nFor debugging consider ..."};
}

TEST(CurrentFailure, AFullGpuIsTheMachines) {
  const auto failure = failure_after([] {
    throw c10::OutOfMemoryError(c10::SourceLocation{"malloc", "file.cpp", 1},
                                "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79 GiB");
  });
  EXPECT_EQ(failure.code, ExitCode::environment);
  EXPECT_EQ(failure.scope, ErrorScope::this_rank);
  EXPECT_THAT(failure.message, AllOf(HasSubstr("CUDA out of memory. Tried to allocate 2.00 GiB."),
                                     HasSubstr("Use a smaller batch"), Not(HasSubstr("file.cpp"))));
  const auto by_code = failure_after([] { throw cuda_error(2, "out of memory"); });
  EXPECT_EQ(by_code.code, ExitCode::environment);
  EXPECT_THAT(by_code.message, HasSubstr("CUDA error: out of memory (code 2). Use a smaller batch"));
}

TEST(CurrentFailure, AGpuThatIsTakenOrLostIsTheMachines) {
  const auto taken = failure_after([] { throw cuda_error(46, "CUDA-capable device(s) is/are busy or unavailable"); });
  EXPECT_EQ(taken.code, ExitCode::environment);
  EXPECT_THAT(taken.message,
              AllOf(HasSubstr("(code 46)"), HasSubstr("exclusive mode"), Not(HasSubstr("For debugging"))));
  for (const int code : {214, 220, 226}) {
    const auto damaged = failure_after([&] { throw cuda_error(code, "uncorrectable error"); });
    EXPECT_EQ(damaged.code, ExitCode::environment);
    EXPECT_THAT(damaged.message, HasSubstr("Xid"));
  }
  const auto lost = failure_after([] { throw cuda_error(999, "unknown error"); });
  EXPECT_EQ(lost.code, ExitCode::environment);
  EXPECT_THAT(lost.message, HasSubstr("nvidia-smi"));
}

TEST(CurrentFailure, AKernelThatFailsIsTheProgramsFault) {
  for (const int code : {700, 710, 719}) {
    const auto failure = failure_after([&] { throw cuda_error(code, "device-side assert triggered"); });
    EXPECT_EQ(failure.code, ExitCode::failure);
    EXPECT_THAT(failure.message, HasSubstr("CUDA_LAUNCH_BLOCKING=1"));
  }
}

TEST(CurrentFailure, AThreadThatTheSystemRefusesIsTheMachines) {
  const auto refused = std::make_error_code(std::errc::resource_unavailable_try_again);
  const auto failure = failure_after([&] { throw std::system_error(refused); });
  EXPECT_EQ(failure.code, ExitCode::environment);
  EXPECT_THAT(failure.message, HasSubstr("refuses another thread"));
  const auto other = failure_after([] { throw std::system_error(std::make_error_code(std::errc::broken_pipe)); });
  EXPECT_EQ(other.code, ExitCode::failure);
  EXPECT_EQ(other.message, "Broken pipe");
}

TEST(CurrentFailure, KeepsWhatAnErrorSays) {
  const auto failure = failure_after([] { throw CommunicationError("A peer is gone.", ErrorScope::all_ranks); });
  EXPECT_EQ(failure.code, ExitCode::communication);
  EXPECT_EQ(failure.scope, ErrorScope::all_ranks);
  EXPECT_EQ(failure.message, "A peer is gone.");
  EXPECT_EQ(failure_after([] { throw std::runtime_error("The disk caught fire."); }).message, "The disk caught fire.");
}

// A launcher that ends a job wakes stopped ranks by SIGCONT, before it ends them.
TEST(ReportFailure, WaitsInAProcessThatWasStopped) {
  const Failure lost{ExitCode::communication, ErrorScope::this_rank, "rank 0 did not arrive"};
  const auto seconds_of_report = [](const Failure& failure) {
    const Stopwatch stopwatch;
    report_failure(failure, 0, 2);
    return stopwatch.seconds();
  };
  record_continues();
  EXPECT_LT(seconds_of_report(lost), 2);
  raise(SIGCONT);
  EXPECT_LT(seconds_of_report({ExitCode::failure, ErrorScope::this_rank, "The disk caught fire."}), 2);
  EXPECT_GT(seconds_of_report(lost), 2.5);
}

}  // namespace
}  // namespace libtrain::detail
