// A rank that is lost between save() and the end of its write, so that the other ranks wait for its share in vain.

#include <filesystem>
#include <functional>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/threads/run_ranks.hpp>
#include <libtrain/data/storage/open_storage.hpp>
#include <libtrain/train/checkpoint.hpp>

#include <tests/support/log_sinks.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain {
namespace {

class Share final : public Checkpointable {
 public:
  Share(int rank, std::function<void()> before_write) : rank_(rank), before_write_(std::move(before_write)) {}

  optim::NamedTensors tensors() override { return {}; }
  bool is_sharded() const override { return true; }
  optim::NamedTensors shard() override {
    before_write_();
    return {{text("of_rank", rank_), at::ones({3})}};
  }
  void load(const optim::NamedTensors&) override {}

 private:
  const int rank_;
  const std::function<void()> before_write_;
};

// Rank 1 leaves nothing in the root, because its path leads elsewhere when it writes, and is lost when the `others`
// have counted the latch down to zero.
void lose_rank_1(const CheckpointOptions& options, const std::function<void(Checkpoint&, std::latch&)>& others) {
  const test::SilentLog silent;
  const test::TemporaryFolder folder;
  const auto link = folder.path() / "link";
  std::filesystem::create_directory_symlink(folder / "root", link);
  std::latch are_ready{2};
  const auto rank_main = [&](Communicator& communicator) {
    if (communicator.rank() == 1) {
      auto own_options = options;
      own_options.in_background = true;
      Checkpoint checkpoint{communicator, link, own_options};
      checkpoint.add("part", std::make_unique<Share>(1, [&] {
                       std::filesystem::remove(link);
                       std::filesystem::create_directory(link);
                     }));
      checkpoint.save({.step = 1});
      are_ready.wait();
      throw std::runtime_error("this rank is lost");
    }
    Checkpoint checkpoint{communicator, folder / "root", options};
    checkpoint.add("part", std::make_unique<Share>(communicator.rank(), [] {}));
    others(checkpoint, are_ready);
  };
  EXPECT_THROW(run_ranks(3, rank_main), std::runtime_error);
}

void expect_lost(const std::function<void(Checkpoint&)>& call) {
  for (const std::string store : {"", "abfss://runs@data1.dfs.core.windows.net/7?sig=x"}) {
    if (!store.empty() && !data::has_arrow()) continue;
    SCOPED_TRACE(store);
    lose_rank_1({.store = store}, [&](Checkpoint& checkpoint, std::latch& are_ready) {
      checkpoint.save({.step = 1});
      are_ready.count_down();
      EXPECT_THROW(call(checkpoint), CommunicationError);
    });
  }
}

TEST(CheckpointOfALostRank, EndsWait) {
  expect_lost([](Checkpoint& checkpoint) { checkpoint.wait(); });
}

TEST(CheckpointOfALostRank, EndsTheNextSave) {
  expect_lost([](Checkpoint& checkpoint) { checkpoint.save({.step = 2}); });
}

TEST(CheckpointOfALostRank, EndsMarkBest) {
  expect_lost([](Checkpoint& checkpoint) { checkpoint.mark_best(1); });
}

TEST(CheckpointOfALostRank, EndsASaveThatIsNotInTheBackground) {
  lose_rank_1({.in_background = false}, [](Checkpoint& checkpoint, std::latch& are_ready) {
    are_ready.count_down();
    EXPECT_THROW(checkpoint.save({.step = 1}), CommunicationError);
  });
}

TEST(CheckpointOfALostRank, EndsTheRunIfTheRankCannotLeaveAReason) {
  const test::SilentLog silent;
  const test::TemporaryFolder folder;
  const auto link = folder.path() / "link";
  std::filesystem::create_directory_symlink(folder / "root", link);
  const auto rank_main = [&](Communicator& communicator) {
    const bool is_lost = communicator.rank() == 1;
    Checkpoint checkpoint{communicator, folder.path() / (is_lost ? "link" : "root")};
    checkpoint.add("part", std::make_unique<Share>(communicator.rank(), [&] {
                     if (is_lost) std::filesystem::remove(link);
                   }));
    checkpoint.save({.step = 1});
    checkpoint.wait();
  };
  EXPECT_THROW(run_ranks(3, rank_main), EnvironmentError);
}

}  // namespace
}  // namespace libtrain
