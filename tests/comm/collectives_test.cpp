// The conformance suite: what every backend must do, on ranks as threads and under mpirun.

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/text.hpp>

#include <tests/support/on_ranks.hpp>

namespace libtrain {
namespace {

using testing::on_many_ranks;
using testing::on_ranks;

constexpr std::int64_t kSeveralChunks = (1 << 20) + 7;  // of MPI's, and of the other transports'

// The large ones for few element types, and for all on demand.
std::vector<std::int64_t> sizes_for(at::ScalarType type) {
  static const bool all = Environment::of_process().get("LIBTRAIN_TEST_ALL_SIZES").has_value();
  std::vector<std::int64_t> sizes{0, 1, 3, 17, 1021};
  if (all || type == at::kFloat || type == at::kHalf) sizes.push_back(65537);
  if (all) sizes.insert(sizes.end(), {2, 64, 4099, kSeveralChunks});
  return sizes;
}

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong, at::kByte};

// Small whole numbers, different on each rank: sums are exact in every type.
at::Tensor pattern(int rank, std::int64_t size, at::ScalarType type) {
  return torch::arange(size, at::kLong).remainder(7).add(rank + 1).to(type);
}

// What all ranks together make of `pattern`, by torch alone.
at::Tensor expected(int world_size, std::int64_t size, at::ScalarType type, ReduceOp op) {
  auto result = pattern(0, size, type);
  for (int rank = 1; rank < world_size; ++rank) {
    const auto next = pattern(rank, size, type);
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::average:
        result = result + next;
        break;
      case ReduceOp::minimum:
        result = torch::minimum(result, next);
        break;
      case ReduceOp::maximum:
        result = torch::maximum(result, next);
        break;
      case ReduceOp::product:
        result = result * next;
        break;
    }
  }
  return op == ReduceOp::average ? result.to(at::kDouble).div(world_size).to(type) : result;
}

void expect_equal(const at::Tensor& actual, const at::Tensor& wanted, const char* what) {
  EXPECT_TRUE(torch::equal(actual, wanted)) << what << " of " << actual.numel() << " " << actual.scalar_type();
}

TEST(Collectives, AllReduceCombinesEveryTypeAndSize) {
  on_many_ranks([](Communicator& communicator) {
    for (const auto type : kTypes) {
      auto sizes = sizes_for(type);
      if (type == at::kDouble) sizes.push_back(kSeveralChunks);
      for (const auto size : sizes) {
        for (const auto op : {ReduceOp::sum, ReduceOp::minimum, ReduceOp::maximum, ReduceOp::average}) {
          if (op == ReduceOp::average && !at::isFloatingType(type)) continue;
          const auto tensor = pattern(communicator.rank(), size, type);
          communicator.all_reduce(tensor, op).wait();
          expect_equal(tensor, expected(communicator.world_size(), size, type, op), "all_reduce");
        }
      }
    }
  });
}

TEST(Collectives, AllReduceKeepsAnInputThatIsNotTheOutput) {
  on_many_ranks([](Communicator& communicator) {
    for (const auto type : kTypes) {
      for (const auto size : sizes_for(type)) {
        const auto input = pattern(communicator.rank(), size, type);
        const auto output = torch::zeros({size}, type);
        communicator.all_reduce(input, output, ReduceOp::maximum).wait();
        expect_equal(output, expected(communicator.world_size(), size, type, ReduceOp::maximum), "all_reduce");
        expect_equal(input, pattern(communicator.rank(), size, type), "the input of all_reduce");
      }
    }
  });
}

TEST(Collectives, AllReduceTakesAllocatedMemoryBesideOrdinary) {
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

TEST(Collectives, ReduceGivesTheRootAlone) {
  on_many_ranks([](Communicator& communicator) {
    const int rank = communicator.rank();
    for (const int root : {0, communicator.world_size() - 1}) {
      for (const auto type : kTypes) {
        for (const auto size : sizes_for(type)) {
          const auto whole = expected(communicator.world_size(), size, type, ReduceOp::sum);
          const auto tensor = pattern(rank, size, type);
          communicator.reduce(tensor, root).wait();
          expect_equal(tensor, rank == root ? whole : pattern(rank, size, type), "reduce in place");
          const auto output = rank == root ? torch::zeros({size}, type) : at::Tensor{};
          const auto input = pattern(rank, size, type);
          communicator.reduce(input, output, root, ReduceOp::sum).wait();
          if (rank == root) expect_equal(output, whole, "reduce");
          expect_equal(input, pattern(rank, size, type), "the input of reduce");
        }
      }
    }
  });
}

TEST(Collectives, AllToAllSendsEachRankItsPart) {
  on_many_ranks([](Communicator& communicator) {
    const int world_size = communicator.world_size();
    for (const auto type : kTypes) {
      for (const auto size : sizes_for(type)) {
        const auto input = pattern(communicator.rank(), size * world_size, type);
        const auto output = torch::zeros({world_size, size}, type);
        communicator.all_to_all(input.view({world_size, size}), output).wait();
        for (int peer = 0; peer < world_size; ++peer) {
          const auto sent = pattern(peer, size * world_size, type).narrow(0, communicator.rank() * size, size);
          expect_equal(output[peer], sent, "all_to_all");
        }
      }
    }
  });
}

TEST(Collectives, AllGatherAndReduceScatterWorkInPlace) {
  on_many_ranks([](Communicator& communicator) {
    const int world_size = communicator.world_size();
    for (const auto size : sizes_for(at::kFloat)) {
      const auto gathered = torch::zeros({world_size, size});
      gathered[communicator.rank()].copy_(pattern(communicator.rank(), size, at::kFloat));
      communicator.all_gather(gathered[communicator.rank()], gathered).wait();
      for (int peer = 0; peer < world_size; ++peer) {
        expect_equal(gathered[peer], pattern(peer, size, at::kFloat), "all_gather in place");
      }
      const auto parts = pattern(communicator.rank(), size * world_size, at::kFloat).view({world_size, size});
      communicator.reduce_scatter(parts, parts[communicator.rank()]).wait();
      const auto whole = expected(world_size, size * world_size, at::kFloat, ReduceOp::sum).view({world_size, size});
      expect_equal(parts[communicator.rank()], whole[communicator.rank()], "reduce_scatter in place");
    }
  });
}

TEST(Collectives, SumsHaveTheSameBitsOnAllRanksAndInAllRuns) {
  on_many_ranks([](Communicator& communicator) {
    const auto run = [&] {
      auto generator = at::detail::createCPUGenerator(7 + static_cast<std::uint64_t>(communicator.rank()));
      const auto tensor = torch::randn({100003}, generator);
      communicator.all_reduce(tensor).wait();
      return tensor;
    };
    const auto first = run();
    EXPECT_TRUE(torch::equal(first, run()));
    const auto of_rank_0 = first.clone();
    communicator.broadcast(of_rank_0, 0).wait();
    EXPECT_TRUE(torch::equal(first, of_rank_0));
  });
}

TEST(Collectives, AllReduceMultiplies) {
  on_many_ranks([](Communicator& communicator) {
    for (const auto type : kTypes) {
      for (const auto size : sizes_for(type)) {
        // Powers of two, exact in every type, but for the whole numbers that wrap alike.
        const auto values = [&](int rank) {
          return torch::arange(size, at::kLong).add(rank).remainder(2).add(1).to(type);
        };
        auto whole = values(0);
        for (int rank = 1; rank < communicator.world_size(); ++rank) whole = whole * values(rank);
        const auto tensor = values(communicator.rank());
        communicator.all_reduce(tensor, ReduceOp::product).wait();
        expect_equal(tensor, whole, "product");
      }
    }
  });
}

TEST(Collectives, SixteenBitSumsAccumulateInThirtyTwo) {
  on_ranks([](Communicator& communicator) {
    // 256 + 1 is 256 in bfloat16, so that a sum taken in bfloat16 would stay at 256 however many ones follow.
    const auto tensor = torch::full({5}, communicator.rank() == 0 ? 256.0 : 1.0, at::kBFloat16);
    communicator.all_reduce(tensor).wait();
    const double sum = 256.0 + communicator.world_size() - 1;
    EXPECT_EQ(tensor[0].item<float>(), torch::full({1}, sum, at::kFloat).to(at::kBFloat16).item<float>());
  });
}

TEST(Collectives, KeepTheShapeOfTensors) {
  on_ranks([](Communicator& communicator) {
    const auto tensor = torch::ones({3, 1, 5});
    communicator.all_reduce(tensor).wait();
    EXPECT_EQ(tensor.sizes(), (std::vector<std::int64_t>{3, 1, 5}));
    EXPECT_EQ(tensor.sum().item<float>(), 15.0f * static_cast<float>(communicator.world_size()));
  });
}

TEST(Collectives, BroadcastCopiesAnyRoot) {
  on_many_ranks([](Communicator& communicator) {
    const int last = communicator.world_size() - 1;
    for (int root = 0; root <= last; ++root) {
      for (const auto type : kTypes) {
        for (const auto size : sizes_for(type)) {
          if (size > 100'000 && root != 0 && root != last) continue;
          const auto tensor = pattern(communicator.rank(), size, type);
          communicator.broadcast(tensor, root).wait();
          expect_equal(tensor, pattern(root, size, type), "broadcast");
        }
      }
    }
  });
}

TEST(Collectives, AllGatherKeepsRankOrder) {
  on_many_ranks([](Communicator& communicator) {
    for (const auto type : kTypes) {
      for (const auto size : sizes_for(type)) {
        const auto input = pattern(communicator.rank(), size, type);
        const auto output = torch::zeros({communicator.world_size(), size}, type);
        communicator.all_gather(input, output).wait();
        for (int rank = 0; rank < communicator.world_size(); ++rank) {
          expect_equal(output[rank], pattern(rank, size, type), "all_gather");
        }
      }
    }
  });
}

TEST(Collectives, ReduceScatterGivesEachRankItsPart) {
  on_many_ranks([](Communicator& communicator) {
    const auto world_size = communicator.world_size();
    for (const auto type : kTypes) {
      for (const auto size : sizes_for(type)) {
        const auto input = pattern(communicator.rank(), size * world_size, type);
        const auto untouched = input.clone();
        const auto output = torch::zeros({size}, type);
        communicator.reduce_scatter(input, output, ReduceOp::sum).wait();
        const auto whole = expected(world_size, size * world_size, type, ReduceOp::sum);
        expect_equal(output, whole.narrow(0, communicator.rank() * size, size), "reduce_scatter");
        expect_equal(input, untouched, "the input of reduce_scatter");
      }
    }
  });
}

TEST(Collectives, LargeOnesAreMovedInPieces) {
  on_ranks([](Communicator& communicator) {
    const int rank = communicator.rank();
    const int world_size = communicator.world_size();
    const auto whole = expected(world_size, kSeveralChunks, at::kFloat, ReduceOp::sum);
    const auto reduced = pattern(rank, kSeveralChunks, at::kFloat);
    communicator.reduce(reduced, 0).wait();
    if (rank == 0) expect_equal(reduced, whole, "reduce");
    const auto copied = pattern(rank, kSeveralChunks, at::kFloat);
    communicator.broadcast(copied, world_size - 1).wait();
    expect_equal(copied, pattern(world_size - 1, kSeveralChunks, at::kFloat), "broadcast");
    const auto gathered = torch::zeros({world_size, kSeveralChunks});
    communicator.all_gather(pattern(rank, kSeveralChunks, at::kFloat), gathered).wait();
    const auto part = torch::zeros({kSeveralChunks});
    communicator.reduce_scatter(gathered, part).wait();
    expect_equal(part, pattern(rank, kSeveralChunks, at::kFloat).mul(world_size), "all_gather and reduce_scatter");
    const auto exchanged = torch::zeros_like(gathered);
    communicator.all_to_all(gathered, exchanged).wait();
    for (int peer = 0; peer < world_size; ++peer) {
      expect_equal(exchanged[peer], pattern(rank, kSeveralChunks, at::kFloat), "all_to_all");
    }
  });
}

TEST(Collectives, RunInTheOrderOfTheCalls) {
  on_ranks([](Communicator& communicator) {
    const int last = communicator.world_size() - 1;
    const auto ranks = static_cast<double>(communicator.world_size());
    const auto tensor = torch::full({1000}, communicator.rank() + 1.0, at::kDouble);
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

// One element count, two shapes: what is reduced is a run of elements.
TEST(Collectives, ShapesMayDiffer) {
  on_ranks([](Communicator& communicator) {
    const int world_size = communicator.world_size();
    for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
      const auto input = pattern(communicator.rank(), 24, type).view({4, 6});
      const auto whole = expected(world_size, 24, type, ReduceOp::sum);
      const auto output = torch::zeros({24}, type);
      communicator.all_reduce(input, output, ReduceOp::sum).wait();
      expect_equal(output, whole, "all_reduce");
      const auto at_root = torch::zeros({2, 12}, type);
      communicator.reduce(input, at_root, 0, ReduceOp::sum).wait();
      if (communicator.rank() == 0) expect_equal(at_root.flatten(), whole, "reduce");
      const auto parts = pattern(communicator.rank(), 8 * world_size, type).view({world_size, 2, 4});
      const auto part = torch::zeros({8, 1}, type);
      communicator.reduce_scatter(parts, part).wait();
      const auto all_parts = expected(world_size, 8 * world_size, type, ReduceOp::sum).view({world_size, 8});
      expect_equal(part.flatten(), all_parts[communicator.rank()], "reduce_scatter");
      const auto gathered = torch::zeros({2 * world_size, 4}, type);
      communicator.all_gather(part, gathered).wait();
      expect_equal(gathered.flatten(), all_parts.flatten(), "all_gather");
    }
  });
}

TEST(Collectives, NotANumberSurvivesWhoeverBringsIt) {
  on_ranks([](Communicator& communicator) {
    for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      for (int origin = 0; origin < communicator.world_size(); ++origin) {
        for (const auto op : {ReduceOp::sum, ReduceOp::minimum, ReduceOp::maximum}) {
          const auto tensor = torch::ones({5}, type);
          if (communicator.rank() == origin) tensor[3] = std::numeric_limits<float>::quiet_NaN();
          communicator.all_reduce(tensor, op).wait();
          EXPECT_EQ(torch::isnan(tensor).sum().item<int>(), 1) << "of rank " << origin << " in " << type;
          EXPECT_TRUE(torch::isnan(tensor[3]).item<bool>());
        }
      }
    }
  });
}

TEST(Collectives, ReduceAndReduceScatterKnowEveryReduction) {
  on_ranks([](Communicator& communicator) {
    const int world_size = communicator.world_size();
    for (const auto type : kTypes) {
      for (const auto op :
           {ReduceOp::sum, ReduceOp::average, ReduceOp::minimum, ReduceOp::maximum, ReduceOp::product}) {
        if (op == ReduceOp::average && !at::isFloatingType(type)) continue;
        // The products of larger numbers are not exact in all types.
        const auto values = [&](int rank) {
          return torch::arange(17 * world_size, at::kLong).add(rank).remainder(3).add(1).to(type);
        };
        auto whole = values(0);
        for (int rank = 1; rank < world_size; ++rank) {
          const auto next = values(rank);
          whole = op == ReduceOp::minimum   ? torch::minimum(whole, next)
                  : op == ReduceOp::maximum ? torch::maximum(whole, next)
                  : op == ReduceOp::product ? whole * next
                                            : whole + next;
        }
        if (op == ReduceOp::average) whole = whole.to(at::kDouble).div(world_size).to(type);
        const auto reduced = values(communicator.rank());
        communicator.reduce(reduced, world_size - 1, op).wait();
        if (communicator.rank() == world_size - 1) expect_equal(reduced, whole, "reduce");
        const auto part = torch::zeros({17}, type);
        communicator.reduce_scatter(values(communicator.rank()), part, op).wait();
        expect_equal(part, whole.view({world_size, 17})[communicator.rank()], "reduce_scatter");
      }
    }
  });
}

TEST(Collectives, ASplitWithEqualKeysKeepsTheOrderOfTheRanks) {
  on_ranks([](Communicator& communicator) {
    const auto part = communicator.split(0, 7);
    EXPECT_EQ(part->rank(), communicator.rank());
    EXPECT_EQ(part->world_size(), communicator.world_size());
  });
}

TEST(Collectives, BytesOfAnyLengthAreGathered) {
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

TEST(Collectives, SplitMakesIndependentGroups) {
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
    const auto tensor = torch::ones({10});
    half->all_reduce(tensor).wait();
    communicator.all_reduce(tensor).wait();
    float sum = 0;
    for (int peer = 0; peer < communicator.world_size(); ++peer) {
      sum += static_cast<float>((communicator.world_size() + (peer % 2 == 0 ? 1 : 0)) / 2);
    }
    EXPECT_EQ(tensor[0].item<float>(), sum);
  });
}

TEST(Collectives, AllocateGivesZeroedMemoryOfItsOwn) {
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

}  // namespace
}  // namespace libtrain
