// What every backend must guarantee besides the values: order, bits, shapes, groups, control messages.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <libtrain/base/text.hpp>

#include <tests/comm/patterns.hpp>
#include <tests/support/device.hpp>
#include <tests/support/on_ranks.hpp>

namespace libtrain {
namespace {

using test::device;
using test::expect_equal;
using test::expected;
using test::on_device;
using test::on_many_ranks;
using test::on_ranks;
using test::pattern;

TEST(CollectiveContract, AllReduceTakesAllocatedMemoryBesideOrdinary) {
  on_many_ranks([](Communicator& communicator) {
    for (const std::int64_t size : {1, 1021, 300007}) {
      for (const int ordinary : {-1, 0, communicator.world_size() - 1}) {
        // On one rank, or on none, the memory is not the communicator's.
        const auto values = pattern(communicator.rank(), size, at::kFloat);
        const auto tensor =
            communicator.rank() == ordinary ? values : communicator.allocate(size, at::kFloat).copy_(values);
        communicator.all_reduce(tensor).wait();
        expect_equal(tensor, expected(communicator.world_size(), size, at::kFloat, ReduceOp::sum), "all_reduce");
      }
    }
  });
}

TEST(CollectiveContract, SumsHaveTheSameBitsOnAllRanksAndInAllRuns) {
  on_many_ranks([](Communicator& communicator) {
    const auto run = [&] {
      auto generator = at::detail::createCPUGenerator(7 + static_cast<std::uint64_t>(communicator.rank()));
      const auto tensor = torch::randn({100003}, generator).to(device());
      communicator.all_reduce(tensor).wait();
      return tensor;
    };
    const auto first = run();
    expect_equal(first, run(), "all_reduce");
    const auto of_rank_0 = first.clone();
    communicator.broadcast(of_rank_0, 0).wait();
    expect_equal(first, of_rank_0, "all_reduce");
  });
}

TEST(CollectiveContract, SixteenBitSumsAccumulateInThirtyTwo) {
  on_ranks([](Communicator& communicator) {
    // 256 + 1 is 256 in bfloat16, so that a sum in bfloat16 would stay at 256.
    const auto tensor = torch::full({5}, communicator.rank() == 0 ? 256.0 : 1.0, on_device(at::kBFloat16));
    communicator.all_reduce(tensor).wait();
    const double sum = 256.0 + communicator.world_size() - 1;
    EXPECT_EQ(tensor[0].item<float>(), torch::full({1}, sum, at::kFloat).to(at::kBFloat16).item<float>());
  });
}

TEST(CollectiveContract, KeepTheShapeOfTensors) {
  on_ranks([](Communicator& communicator) {
    const auto tensor = torch::ones({3, 1, 5}, device());
    communicator.all_reduce(tensor).wait();
    EXPECT_EQ(tensor.sizes(), (std::vector<std::int64_t>{3, 1, 5}));
    EXPECT_EQ(tensor.sum().item<float>(), 15.0f * static_cast<float>(communicator.world_size()));
  });
}

TEST(CollectiveContract, RunInTheOrderOfTheCalls) {
  on_ranks([](Communicator& communicator) {
    const int last = communicator.world_size() - 1;
    const auto ranks = static_cast<double>(communicator.world_size());
    const auto tensor = torch::full({1000}, communicator.rank() + 1.0, on_device(at::kDouble));
    std::vector<Work> works;
    works.push_back(communicator.all_reduce(tensor, ReduceOp::maximum));  // the number of ranks
    works.push_back(communicator.all_reduce(tensor));                     // squared
    works.push_back(communicator.broadcast(tensor, last));
    works.push_back(communicator.all_reduce(tensor, ReduceOp::product));
    works.push_back(communicator.all_reduce(tensor));
    works.back().wait();
    EXPECT_EQ(tensor[999].item<double>(), ranks * std::pow(ranks * ranks, ranks));
    for (auto& work : works) EXPECT_TRUE(work.done());
  });
}

// One element count, two shapes: the shapes do not matter.
TEST(CollectiveContract, ShapesMayDiffer) {
  on_ranks([](Communicator& communicator) {
    const int world_size = communicator.world_size();
    for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
      const auto input = pattern(communicator.rank(), 24, type).view({4, 6});
      const auto whole = expected(world_size, 24, type, ReduceOp::sum);
      const auto output = torch::zeros({24}, on_device(type));
      communicator.all_reduce(input, output, ReduceOp::sum).wait();
      expect_equal(output, whole, "all_reduce");
      const auto at_root = torch::zeros({2, 12}, on_device(type));
      communicator.reduce(input, at_root, 0, ReduceOp::sum).wait();
      if (communicator.rank() == 0) expect_equal(at_root.flatten(), whole, "reduce");
      const auto parts = pattern(communicator.rank(), 8 * world_size, type).view({world_size, 2, 4});
      const auto part = torch::zeros({8, 1}, on_device(type));
      communicator.reduce_scatter(parts, part).wait();
      const auto all_parts = expected(world_size, 8 * world_size, type, ReduceOp::sum).view({world_size, 8});
      expect_equal(part.flatten(), all_parts[communicator.rank()], "reduce_scatter");
      const auto gathered = torch::zeros({2 * world_size, 4}, on_device(type));
      communicator.all_gather(part, gathered).wait();
      expect_equal(gathered.flatten(), all_parts.flatten(), "all_gather");
    }
  });
}

void expect_nan_at(const at::Tensor& tensor, std::int64_t place) {
  EXPECT_EQ(torch::isnan(tensor).sum().item<int>(), 1) << tensor;
  EXPECT_TRUE(torch::isnan(tensor[place]).item<bool>());
}

TEST(CollectiveContract, NotANumberSurvivesWhoeverBringsIt) {
  on_ranks([](Communicator& communicator) {
    for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      for (int origin = 0; origin < communicator.world_size(); ++origin) {
        for (const auto op : {ReduceOp::sum, ReduceOp::minimum, ReduceOp::maximum}) {
          const auto tensor = torch::ones({5}, on_device(type));
          if (communicator.rank() == origin) tensor[3] = std::numeric_limits<float>::quiet_NaN();
          const auto output = torch::zeros({5}, on_device(type));
          communicator.reduce(tensor, output, origin, op).wait();
          if (communicator.rank() == origin) expect_nan_at(output, 3);
          const auto parts = tensor.repeat({communicator.world_size()});
          communicator.reduce_scatter(parts, output, op).wait();
          expect_nan_at(output, 3);
          communicator.all_reduce(tensor, op).wait();
          expect_nan_at(tensor, 3);
        }
      }
    }
  });
}

TEST(CollectiveContract, ASplitWithEqualKeysKeepsTheOrderOfTheRanks) {
  on_ranks([](Communicator& communicator) {
    const auto part = communicator.split(0, 7);
    EXPECT_EQ(part->rank(), communicator.rank());
    EXPECT_EQ(part->world_size(), communicator.world_size());
  });
}

TEST(CollectiveContract, BytesOfAnyLengthAreGathered) {
  on_ranks([](Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    const auto gathered = communicator.all_gather_bytes(std::string(rank * 70000, static_cast<char>('a' + rank)));
    ASSERT_EQ(gathered.size(), static_cast<std::size_t>(communicator.world_size()));
    for (std::size_t peer = 0; peer < gathered.size(); ++peer) {
      EXPECT_EQ(gathered[peer], std::string(peer * 70000, static_cast<char>('a' + peer)));
    }
    const int last = communicator.world_size() - 1;
    EXPECT_EQ(communicator.broadcast_bytes(text("from rank ", communicator.rank()), last), text("from rank ", last));
  });
}

TEST(CollectiveContract, SplitMakesIndependentGroups) {
  on_ranks([](Communicator& communicator) {
    const int rank = communicator.rank();
    // The key reverses the order within each half.
    const auto half = communicator.split(rank % 2, -rank);
    int members = 0;
    int after = 0;
    for (int peer = rank % 2; peer < communicator.world_size(); peer += 2) {
      ++members;
      if (peer > rank) ++after;
    }
    EXPECT_EQ(half->world_size(), members);
    EXPECT_EQ(half->rank(), after);
    const auto tensor = torch::ones({10}, device());
    half->all_reduce(tensor).wait();
    communicator.all_reduce(tensor).wait();
    float sum = 0;
    for (int peer = 0; peer < communicator.world_size(); ++peer) {
      sum += static_cast<float>((communicator.world_size() + (peer % 2 == 0 ? 1 : 0)) / 2);
    }
    EXPECT_EQ(tensor[0].item<float>(), sum);
  });
}

TEST(CollectiveContract, AllocateGivesZeroedMemoryOfItsOwn) {
  on_ranks([](Communicator& communicator) {
    const auto tensor = communicator.allocate(1000, at::kFloat);
    EXPECT_EQ(tensor.sizes(), (std::vector<std::int64_t>{1000}));
    EXPECT_EQ(tensor.abs().sum().item<float>(), 0.0f);
    tensor.fill_(1);
    communicator.all_reduce(tensor).wait();
    EXPECT_EQ(tensor.sum().item<float>(), 1000.0f * static_cast<float>(communicator.world_size()));
    EXPECT_EQ(communicator.allocate(0, at::kLong).numel(), 0);
  });
}

std::ptrdiff_t entries_of(const std::filesystem::path& folder) {
  return std::distance(std::filesystem::directory_iterator{folder}, {});
}

struct Possessions {
  std::ptrdiff_t descriptors = entries_of("/proc/self/fd");
  std::ptrdiff_t threads = entries_of("/proc/self/task");
  std::ptrdiff_t mappings = count_mappings();

  static std::ptrdiff_t count_mappings() {
    std::ifstream maps{"/proc/self/maps"};
    return std::count(std::istreambuf_iterator<char>{maps}, {}, '\n');
  }
};

// One reading at a time if ranks are threads, because reading opens descriptors.
Possessions possessions() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return {};
}

// Two thousand times on demand, as the large sizes.
TEST(CollectiveContract, GroupsThatComeAndGoLeaveNothingOpen) {
  on_ranks([](Communicator& communicator) {
    // NCCL takes half a second to connect.
    const int cycles = !device().is_cpu() ? 8 : test::tests_all_sizes() ? 2000 : 20;
    const auto repeat = [&](int times) {
      for (int cycle = 0; cycle < times; ++cycle) {
        const auto part = communicator.split(0, communicator.world_size() - communicator.rank());
        const auto tensor = part->allocate(100, at::kFloat).fill_(1);
        part->all_reduce(tensor).wait();
        EXPECT_EQ(tensor[99].item<float>(), static_cast<float>(communicator.world_size()));
      }
      communicator.barrier();
    };
    // A device hands out its streams in turn, and a pretended one starts a thread for each.
    constexpr int kStreams = 32;
    repeat(device().is_cpu() ? 3 : kStreams + 1);
    const auto before = possessions();
    communicator.barrier();
    repeat(cycles);
    auto after = possessions();
    // The kernel lists a thread for a moment after it has been joined.
    for (const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
         after.threads > before.threads && std::chrono::steady_clock::now() < deadline; after = possessions()) {
      std::this_thread::yield();
    }
    EXPECT_LE(after.descriptors, before.descriptors);
    EXPECT_LE(after.threads, before.threads);
    EXPECT_LT(after.mappings, before.mappings + 100);  // the number of the allocator's own mappings varies
    communicator.barrier();
  });
}

}  // namespace
}  // namespace libtrain
