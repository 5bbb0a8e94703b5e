#include <libtrain/comm/host_engine.hpp>

#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::detail {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;

// A library that cannot be interrupted, in a call that a stopped peer never answers.
class StuckTransport : public HostTransport {
 public:
  explicit StuckTransport(std::shared_future<void> end) : end_(std::move(end)) {}

  int rank() const override { return 0; }
  int world_size() const override { return 2; }
  std::string_view name() const override { return "stuck"; }

  bool interruptible() const override { return false; }

  bool arrive(const Arrival&, const Patience&) override { return true; }
  void all_reduce(const void*, void*, std::size_t, DataType, ReduceOp, const Patience&) override {
    end_.wait_for(std::chrono::seconds(30));  // so that a wait without a bound fails the test and does not hang it
  }
  void reduce(const void*, void*, std::size_t, DataType, ReduceOp, int, const Patience&) override {}
  void broadcast(void*, std::size_t, int, const Patience&) override {}
  void all_gather(const void*, void*, std::size_t, const Patience&) override {}
  void reduce_scatter(const void*, void*, std::size_t, DataType, ReduceOp, const Patience&) override {}
  void all_to_all(const void*, void*, std::size_t, const Patience&) override {}
  std::unique_ptr<HostTransport> split(int, int, const Patience&) override { return nullptr; }
  void abort(const std::string&) noexcept override {}

 private:
  std::shared_future<void> end_;
};

TEST(HostEngine, AStuckLibraryHoldsUpNeitherTheWaitNorTheDestructor) {
  std::promise<void> end;
  const Stopwatch stopwatch;
  const auto message = message_of<CommunicationError>([&] {
    HostEngine engine{std::make_unique<StuckTransport>(end.get_future().share()), std::chrono::milliseconds(100)};
    const auto reduce = [](HostTransport& transport, const Patience& patience) {
      transport.all_reduce(nullptr, nullptr, 0, DataType::float32, ReduceOp::sum, patience);
    };
    engine.submit({CallKind::all_reduce, 8, DataType::float32, ReduceOp::sum}, {}, reduce).wait();
  });
  EXPECT_THAT(message, AllOf(HasSubstr("all_reduce of 8 float32 (sum)"), HasSubstr("still stuck")));
  EXPECT_LT(stopwatch.seconds(), 15.0);
  end.set_value();
}

}  // namespace
}  // namespace libtrain::detail
