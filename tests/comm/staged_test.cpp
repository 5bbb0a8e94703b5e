// Tensors staged through host memory, on ranks as threads and under mpirun. CPU tensors take the place of device
// tensors.

#include <unistd.h>

#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/single/single_communicator.hpp>
#include <libtrain/comm/detail/staged/staged_communicator.hpp>
#include <libtrain/comm/detail/staged/staging_pool.hpp>

#include <tests/support/on_ranks.hpp>

namespace libtrain {
namespace {

using test::on_ranks;

constexpr at::ScalarType kStagedTypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,
                                           at::kInt,   at::kLong,   at::kByte};

// Small whole numbers, different on each rank: sums are exact in every type.
at::Tensor staged_pattern(int rank, std::int64_t size, at::ScalarType type) {
  return torch::arange(size, at::kLong).remainder(7).add(rank + 1).to(type);
}

at::Tensor sum_of_patterns(int world_size, std::int64_t size, at::ScalarType type) {
  auto sum = torch::zeros({size}, at::kLong);
  for (int rank = 0; rank < world_size; ++rank) sum.add_(staged_pattern(rank, size, at::kLong));
  return sum.to(type);
}

std::unique_ptr<Communicator> stage(Communicator& communicator) {
  return std::make_unique<detail::StagedCommunicator>(communicator.split(0, communicator.rank()), at::kCPU);
}

// A separate staged communicator on every rank, for every type and some sizes.
void on_staged_ranks(const std::function<void(Communicator&, std::int64_t, at::ScalarType)>& body) {
  on_ranks([&](Communicator& communicator) {
    const auto owner = stage(communicator);
    auto& staged = *owner;
    for (const auto type : kStagedTypes) {
      for (const std::int64_t size : {0, 1, 17, 4099}) {
        SCOPED_TRACE(text(size, " ", type, " on rank ", staged.rank(), " of ", staged.world_size()));
        body(staged, size, type);
      }
    }
  });
}

// The ranks' communicator is the one for host memory.
TEST(HostOnlyStaged, AllReduceCombinesInPlaceAndOutOfPlace) {
  on_staged_ranks([](Communicator& staged, std::int64_t size, at::ScalarType type) {
    const auto expected = sum_of_patterns(staged.world_size(), size, type);
    const auto tensor = staged_pattern(staged.rank(), size, type);
    staged.all_reduce(tensor).wait();
    EXPECT_TRUE(torch::equal(tensor, expected));
    const auto input = staged_pattern(staged.rank(), size, type);
    const auto output = torch::zeros({size}, type);
    staged.all_reduce(input, output, ReduceOp::sum).wait();
    EXPECT_TRUE(torch::equal(output, expected));
    EXPECT_TRUE(torch::equal(input, staged_pattern(staged.rank(), size, type)));
  });
}

// The buffers of an evaluation serve the training, too.
TEST(HostOnlyStaged, AllReducesInferenceTensors) {
  on_staged_ranks([](Communicator& staged, std::int64_t size, at::ScalarType type) {
    const auto expected = sum_of_patterns(staged.world_size(), size, type);
    Work later;
    at::Tensor waited_for;
    {
      const c10::InferenceMode mode;
      waited_for = staged_pattern(staged.rank(), size, type);
      later = staged.all_reduce(waited_for);
    }
    later.wait();
    EXPECT_TRUE(torch::equal(waited_for, expected));
    const auto tensor = staged_pattern(staged.rank(), size, type);
    staged.all_reduce(tensor).wait();
    EXPECT_TRUE(torch::equal(tensor, expected));
  });
}

// A parameter, and a loss whose gradient is wanted.
TEST(HostOnlyStaged, LeavesAutogradAlone) {
  on_staged_ranks([](Communicator& staged, std::int64_t size, at::ScalarType type) {
    if (!at::isFloatingType(type)) return;
    const auto expected = sum_of_patterns(staged.world_size(), size, type);
    const auto leaf = staged_pattern(staged.rank(), size, type).requires_grad_();
    const auto twice = leaf * 2;
    staged.all_reduce(twice).wait();
    EXPECT_TRUE(torch::equal(twice, expected * 2));
    twice.sum().backward();
    EXPECT_TRUE(torch::equal(leaf.grad(), torch::full_like(leaf, 2)));
    staged.all_reduce(leaf).wait();
    EXPECT_TRUE(torch::equal(leaf, expected));
    EXPECT_TRUE(leaf.is_leaf());
  });
}

TEST(HostOnlyStaged, ReduceReachesTheRootAlone) {
  on_staged_ranks([](Communicator& staged, std::int64_t size, at::ScalarType type) {
    const int root = staged.world_size() - 1;
    const bool is_root = staged.rank() == root;
    const auto own = staged_pattern(staged.rank(), size, type);
    const auto expected = sum_of_patterns(staged.world_size(), size, type);
    const auto tensor = own.clone();
    staged.reduce(tensor, root).wait();
    EXPECT_TRUE(torch::equal(tensor, is_root ? expected : own));
    const auto output = is_root ? torch::zeros({size}, type) : at::Tensor{};
    staged.reduce(own, output, root, ReduceOp::sum).wait();
    EXPECT_TRUE(!is_root || torch::equal(output, expected));
  });
}

TEST(HostOnlyStaged, BroadcastCopiesTheRoot) {
  on_staged_ranks([](Communicator& staged, std::int64_t size, at::ScalarType type) {
    for (int root = 0; root < staged.world_size(); ++root) {
      const auto tensor = staged_pattern(staged.rank(), size, type);
      staged.broadcast(tensor, root).wait();
      EXPECT_TRUE(torch::equal(tensor, staged_pattern(root, size, type)));
    }
  });
}

TEST(HostOnlyStaged, AllGatherAndAllToAllKeepRankOrder) {
  on_staged_ranks([](Communicator& staged, std::int64_t size, at::ScalarType type) {
    const int world_size = staged.world_size();
    const auto gathered = torch::zeros({world_size, size}, type);
    staged.all_gather(staged_pattern(staged.rank(), size, type), gathered).wait();
    // Rank s sends staged_pattern(s) + r to rank r.
    std::vector<at::Tensor> parts;
    for (int peer = 0; peer < world_size; ++peer) parts.push_back(staged_pattern(staged.rank() + peer, size, type));
    const auto exchanged = torch::zeros({world_size, size}, type);
    staged.all_to_all(torch::stack(parts), exchanged).wait();
    for (int peer = 0; peer < world_size; ++peer) {
      EXPECT_TRUE(torch::equal(gathered[peer], staged_pattern(peer, size, type)));
      EXPECT_TRUE(torch::equal(exchanged[peer], staged_pattern(peer + staged.rank(), size, type)));
    }
  });
}

TEST(HostOnlyStaged, ReduceScatterGivesEachRankItsPart) {
  on_staged_ranks([](Communicator& staged, std::int64_t size, at::ScalarType type) {
    const int world_size = staged.world_size();
    const auto input = staged_pattern(staged.rank(), size * world_size, type);
    const auto part = input.narrow(0, staged.rank() * size, size);
    staged.reduce_scatter(input, part).wait();
    const auto whole = sum_of_patterns(world_size, size * world_size, type);
    EXPECT_TRUE(torch::equal(part, whole.narrow(0, staged.rank() * size, size)));
  });
}

TEST(HostOnlyStaged, EqualCountsMayComeInDifferentShapes) {
  on_ranks([](Communicator& communicator) {
    const auto owner = stage(communicator);
    auto& staged = *owner;
    const auto expected = sum_of_patterns(staged.world_size(), 6, at::kFloat);
    const auto input = staged_pattern(staged.rank(), 6, at::kFloat);
    const auto output = torch::zeros({2, 3});
    staged.all_reduce(input, output, ReduceOp::sum).wait();
    EXPECT_TRUE(torch::equal(output.view({6}), expected));
    staged.reduce(input, output.zero_(), 0, ReduceOp::sum).wait();
    EXPECT_TRUE(staged.rank() != 0 || torch::equal(output.view({6}), expected));
    staged.all_reduce(input, input.view({3, 2}), ReduceOp::sum).wait();
    EXPECT_TRUE(torch::equal(input, expected));
    // Ranks need not agree on the shape either.
    const std::int64_t columns = staged.rank() % 2 == 0 ? 3 : 1;
    const auto tensor = staged_pattern(staged.rank(), 6, at::kFloat).view({6 / columns, columns});
    staged.broadcast(tensor, 0).wait();
    EXPECT_TRUE(torch::equal(tensor.view({6}), staged_pattern(0, 6, at::kFloat)));
  });
}

// 4 MiB are a piece: one message of some pieces and a rest, and one of whole pieces.
TEST(HostOnlyStaged, MessagesOfManyPiecesArriveWhole) {
  on_ranks([](Communicator& communicator) {
    const auto owner = stage(communicator);
    auto& staged = *owner;
    for (const std::int64_t size : {2'500'001, 2 << 20}) {
      SCOPED_TRACE(size);
      const auto expected = sum_of_patterns(staged.world_size(), size, at::kFloat);
      const auto tensor = staged_pattern(staged.rank(), size, at::kFloat);
      staged.all_reduce(tensor).wait();
      EXPECT_TRUE(torch::equal(tensor, expected));
      const auto reduced = staged_pattern(staged.rank(), size, at::kFloat);
      staged.reduce(reduced, 0).wait();
      EXPECT_TRUE(
          torch::equal(reduced, staged.rank() == 0 ? expected : staged_pattern(staged.rank(), size, at::kFloat)));
      const auto sent = staged_pattern(staged.rank(), size, at::kFloat);
      staged.broadcast(sent, 0).wait();
      EXPECT_TRUE(torch::equal(sent, staged_pattern(0, size, at::kFloat)));
    }
  });
}

TEST(HostOnlyStaged, DifferentCountsAreFoundInTheSameCall) {
  test::on_fresh_ranks(2, {.timeout = std::chrono::seconds(30)}, [](Communicator& communicator) {
    const auto owner = stage(communicator);
    auto& staged = *owner;
    // The first piece is whole for all, the second for rank 0 alone.
    const std::int64_t size = staged.rank() == 0 ? 2 << 20 : 1 << 20;
    const auto tensor = torch::ones({size});
    EXPECT_THROW(staged.all_reduce(tensor).wait(), CommunicationError);
  });
}

TEST(HostOnlyStaged, LetsGoOfResultsThatNobodyWaitsFor) {
  on_ranks([](Communicator& communicator) {
    const auto owner = stage(communicator);
    auto& staged = *owner;
    std::vector<at::Tensor> tensors;
    for (int call = 0; call < 5; ++call) {
      tensors.push_back(torch::ones({100}));
      static_cast<void>(staged.all_reduce(tensors.back()));
    }
    staged.barrier();  // the host is done with all of them
    staged.all_reduce(torch::ones({1})).wait();
    for (const auto& tensor : tensors) {
      EXPECT_EQ(tensor.storage().use_count(), 1u);
      EXPECT_EQ(tensor[99].item<float>(), static_cast<float>(staged.world_size()));
    }
  });
}

TEST(HostOnlyStaged, CallsOnTheSameMemoryKeepTheirOrder) {
  on_ranks([](Communicator& communicator) {
    const auto owner = stage(communicator);
    auto& staged = *owner;
    const auto tensor = torch::ones({1000}, at::kDouble);
    std::vector<Work> works;
    for (int call = 0; call < 5; ++call) {
      works.push_back(staged.all_reduce(tensor));
      works.push_back(staged.all_reduce(tensor.narrow(0, 100 * call, 200)));
    }
    for (auto& work : works) work.wait();
    const double ranks = staged.world_size();
    EXPECT_EQ(tensor[999].item<double>(), std::pow(ranks, 5));
    EXPECT_EQ(tensor[50].item<double>(), std::pow(ranks, 6));
    EXPECT_EQ(tensor[150].item<double>(), std::pow(ranks, 7));
  });
}

TEST(HostOnlyStaged, DoneBringsTheResult) {
  on_ranks([](Communicator& communicator) {
    const auto owner = stage(communicator);
    auto& staged = *owner;
    const auto tensor = torch::ones({100});
    const auto work = staged.all_reduce(tensor);
    const auto deadline = Deadline::after(std::chrono::seconds(30));
    while (!work.done() && !deadline.expired()) std::this_thread::yield();
    ASSERT_TRUE(work.done());
    EXPECT_EQ(tensor[99].item<float>(), static_cast<float>(staged.world_size()));
  });
}

TEST(HostOnlyStaged, HasTheTimesOfItsPieces) {
  on_ranks([](Communicator& communicator) {
    const auto owner = stage(communicator);
    const auto called = WorkTimes::Clock::now();
    auto work = owner->all_reduce(torch::ones({5 << 20}));  // in several pieces
    work.wait();
    const auto times = work.times();
    ASSERT_TRUE(times.has_value());
    EXPECT_LE(called, times->called);
    EXPECT_LE(times->called, times->began);
    EXPECT_LT(times->began, times->ended);
    EXPECT_LE(times->ended, WorkTimes::Clock::now());
    const auto pieces = owner->recent_collectives();
    ASSERT_EQ(pieces.size(), 6U);  // the last one is empty
    EXPECT_EQ(times->began, pieces.front().times.began);
    EXPECT_EQ(times->ended, pieces.back().times.ended);
  });
}

TEST(HostOnlyStaged, ControlSplitAndAllocateWork) {
  on_ranks([](Communicator& communicator) {
    const auto owner = stage(communicator);
    auto& staged = *owner;
    EXPECT_EQ(staged.backend(), text("staged ", communicator.backend()));
    staged.barrier();
    EXPECT_EQ(staged.broadcast_bytes(text("rank ", staged.rank()), 0), "rank 0");
    EXPECT_EQ(staged.all_gather_bytes("me").size(), static_cast<std::size_t>(staged.world_size()));
    const auto alone = staged.split(staged.rank(), 0);
    EXPECT_EQ(alone->world_size(), 1);
    const auto tensor = alone->allocate(7, at::kInt);
    alone->all_reduce(tensor.fill_(3)).wait();
    EXPECT_EQ(tensor.sum().item<int>(), 21);
  });
}

TEST(HostOnlyStaged, BadArgumentsAreUsageErrors) {
  on_ranks([](Communicator& communicator) {
    const auto owner = stage(communicator);
    auto& staged = *owner;
    EXPECT_THROW(static_cast<void>(staged.all_reduce(at::Tensor{})), UsageError);
    EXPECT_THROW(static_cast<void>(staged.all_reduce(torch::ones({4}), at::Tensor{}, ReduceOp::sum)), UsageError);
    EXPECT_THROW(static_cast<void>(staged.all_reduce(torch::ones({4}), torch::ones({5}), ReduceOp::sum)), UsageError);
    EXPECT_THROW(static_cast<void>(staged.all_reduce(torch::empty({4}, at::kMeta))), UsageError);
    EXPECT_THROW(static_cast<void>(staged.all_reduce(torch::ones({4, 4}).t().slice(1, 0, 2))), UsageError);
    EXPECT_THROW(static_cast<void>(staged.all_reduce(torch::ones({4}, at::kInt), ReduceOp::average)), UsageError);
    EXPECT_THROW(static_cast<void>(staged.broadcast(torch::ones({4}), staged.world_size())), UsageError);
    EXPECT_THROW(staged.allocate(-1, at::kFloat), UsageError);
    staged.barrier();  // still usable
  });
}

TEST(StagingPool, LendsABufferAgainWhenItIsBack) {
  detail::StagingPool pool{std::make_shared<detail::SingleCommunicator>(), at::kCPU};
  const auto first = pool.take(300'000, at::kFloat);
  auto second = pool.take(300'000, at::kFloat);
  EXPECT_NE(first->first(1).data_ptr(), second->first(1).data_ptr());
  const auto* memory = second->first(1).data_ptr();
  second.reset();
  EXPECT_EQ(pool.take(250'000, at::kFloat)->first(1).data_ptr(), memory);
  EXPECT_NE(pool.take(300'000, at::kInt)->first(1).data_ptr(), memory);
  EXPECT_NE(pool.take(10, at::kFloat)->first(1).data_ptr(), memory) << "far too large";
}

TEST(StagingPool, OneSmallBufferServesManySizes) {
  detail::StagingPool pool{std::make_shared<detail::SingleCommunicator>(), at::kCPU};
  const auto* memory = pool.take(1000, at::kFloat)->first(1).data_ptr();
  for (const std::int64_t size : {0, 1, 17, 999, 1000}) {
    EXPECT_EQ(pool.take(size, at::kFloat)->first(size).numel(), size);
    EXPECT_EQ(pool.take(size, at::kFloat)->first(1).data_ptr(), memory);
  }
}

TEST(StagingPool, BuffersAreWholePagesAndOutliveThePool) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  std::vector<std::shared_ptr<detail::StagingBuffer>> buffers;
  {
    detail::StagingPool pool{std::make_shared<detail::SingleCommunicator>(), at::kCPU};
    for (const auto type : kStagedTypes) {
      for (const std::int64_t size : {0, 1, 1021, 4096, 100'000}) buffers.push_back(pool.take(size, type));
    }
  }
  for (const auto& buffer : buffers) {
    const auto memory = buffer->first(buffer->elements());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data_ptr()) % page, 0u);
    EXPECT_EQ(memory.nbytes() % page, 0u);
    memory.fill_(1);
  }
}

TEST(HostOnlyStaged, AFailureOfTheHostReachesWaitersAndLaterCalls) {
  test::on_fresh_ranks(2, {.timeout = std::chrono::milliseconds(300)}, [](Communicator& communicator) {
    const auto owner = stage(communicator);
    auto& staged = *owner;
    if (staged.rank() == 1) return;
    auto work = staged.all_reduce(torch::ones({8}));
    EXPECT_THROW(work.wait(), CommunicationError);
    EXPECT_TRUE(work.done());
    EXPECT_THROW(static_cast<void>(staged.all_reduce(torch::ones({8}))), CommunicationError);
  });
}

}  // namespace
}  // namespace libtrain
