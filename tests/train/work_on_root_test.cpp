#include <libtrain/train/detail/work_on_root.hpp>

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>

namespace libtrain::detail {
namespace {

using namespace std::chrono_literals;

// Such as reading a large checkpoint. Nothing here depends on the device.
TEST(HostOnlyWorkOnRoot, MayTakeLongerThanACollective) {
  test::on_fresh_ranks(2, {.timeout = 3s}, [](Communicator& communicator) {
    if (communicator.world_size() > 2) return;
    int calls = 0;
    run_on_root(communicator, {.what = "Reading", .run = [&] {
                                 ++calls;
                                 std::this_thread::sleep_for(4500ms);
                               }});
    EXPECT_EQ(calls, communicator.rank() == 0 ? 1 : 0);
  });
}

TEST(HostOnlyWorkOnRoot, FailsOnAllRanks) {
  test::on_ranks([](Communicator& communicator) {
    const auto fail = [] { throw EnvironmentError("No space left."); };
    EXPECT_THAT(
        test::message_of<EnvironmentError>([&] { run_on_root(communicator, {.what = "Writing", .run = fail}); }),
        ::testing::HasSubstr("No space left."));
  });
}

}  // namespace
}  // namespace libtrain::detail
