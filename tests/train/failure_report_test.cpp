#include <libtrain/train/failure_report.hpp>

#include <new>
#include <stdexcept>
#include <system_error>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

namespace libtrain::detail {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

template <typename Action>
Failure failure_of(const Action& action) {
  try {
    action();
  } catch (...) {
    return current_failure();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(CurrentFailure, LeavesOutTheFramesOfLibTorch) {
  const auto failure = failure_of([] { return torch::ones({2, 3}).matmul(torch::ones({2, 3})); });
  EXPECT_EQ(failure.code, ExitCode::failure);
  EXPECT_EQ(failure.message, "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)");
}

TEST(CurrentFailure, LibTorchsLackOfMemoryIsTheMachines) {
  const auto failure = failure_of([] { return torch::empty({std::int64_t{1} << 60}); });
  EXPECT_EQ(failure.code, ExitCode::environment);
  EXPECT_THAT(failure.message, StartsWith(failure_of([] { throw std::bad_alloc(); }).message));
  EXPECT_THAT(failure.message,
              AllOf(HasSubstr("tried to allocate 4611686018427387904 bytes"), Not(HasSubstr("frame #"))));
}

TEST(CurrentFailure, AThreadThatTheSystemRefusesIsTheMachines) {
  const auto refused = std::make_error_code(std::errc::resource_unavailable_try_again);
  const auto failure = failure_of([&] { throw std::system_error(refused); });
  EXPECT_EQ(failure.code, ExitCode::environment);
  EXPECT_THAT(failure.message, HasSubstr("refuses another thread"));
  const auto other = failure_of([] { throw std::system_error(std::make_error_code(std::errc::broken_pipe)); });
  EXPECT_EQ(other.code, ExitCode::failure);
  EXPECT_EQ(other.message, "Broken pipe");
}

TEST(CurrentFailure, KeepsWhatAnErrorSays) {
  const auto failure = failure_of([] { throw CommunicationError("A peer is gone.", ErrorScope::all_ranks); });
  EXPECT_EQ(failure.code, ExitCode::communication);
  EXPECT_EQ(failure.scope, ErrorScope::all_ranks);
  EXPECT_EQ(failure.message, "A peer is gone.");
  EXPECT_EQ(failure_of([] { throw std::runtime_error("The disk caught fire."); }).message, "The disk caught fire.");
}

}  // namespace
}  // namespace libtrain::detail
