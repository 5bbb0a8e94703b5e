// The conformance suite: what every backend must do with every type, size and reduction, on ranks as threads and under
// mpirun.

#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <tests/comm/patterns.hpp>
#include <tests/support/device.hpp>
#include <tests/support/on_ranks.hpp>

namespace libtrain {
namespace {

using test::device;
using test::expect_equal;
using test::expected;
using test::kSeveralChunks;
using test::kTypes;
using test::on_device;
using test::on_many_ranks;
using test::on_ranks;
using test::pattern;
using test::sizes_for;

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

// Tensors of an evaluation, which may be written in that mode only, and memory that serves both.
TEST(Collectives, ReduceInferenceTensors) {
  on_ranks([](Communicator& communicator) {
    for (const auto type : {at::kBFloat16, at::kFloat}) {
      const auto sum = expected(communicator.world_size(), 17, type, ReduceOp::sum);
      Work later;
      at::Tensor waited_for;
      {
        const c10::InferenceMode mode;
        const auto tensor = pattern(communicator.rank(), 17, type);
        communicator.all_reduce(tensor, ReduceOp::sum).wait();
        expect_equal(tensor, sum, "all_reduce");
        waited_for = pattern(communicator.rank(), 17, type);
        later = communicator.all_reduce(waited_for, ReduceOp::sum);
      }
      later.wait();
      expect_equal(waited_for, sum, "all_reduce that is waited for outside");
      const auto tensor = pattern(communicator.rank(), 17, type);
      communicator.all_reduce(tensor, ReduceOp::sum).wait();
      expect_equal(tensor, sum, "all_reduce of the training");
    }
  });
}

TEST(Collectives, AllReduceKeepsAnInputThatIsNotTheOutput) {
  on_many_ranks([](Communicator& communicator) {
    for (const auto type : kTypes) {
      for (const auto size : sizes_for(type)) {
        const auto input = pattern(communicator.rank(), size, type);
        const auto output = torch::zeros({size}, on_device(type));
        communicator.all_reduce(input, output, ReduceOp::maximum).wait();
        expect_equal(output, expected(communicator.world_size(), size, type, ReduceOp::maximum), "all_reduce");
        expect_equal(input, pattern(communicator.rank(), size, type), "the input of all_reduce");
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
          const auto output = rank == root ? torch::zeros({size}, on_device(type)) : at::Tensor{};
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
        const auto output = torch::zeros({world_size, size}, on_device(type));
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
      const auto gathered = torch::zeros({world_size, size}, device());
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
        const auto tensor = values(communicator.rank()).to(device());
        communicator.all_reduce(tensor, ReduceOp::product).wait();
        expect_equal(tensor, whole, "product");
      }
    }
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
        const auto output = torch::zeros({communicator.world_size(), size}, on_device(type));
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
        const auto output = torch::zeros({size}, on_device(type));
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
    const auto gathered = torch::zeros({world_size, kSeveralChunks}, device());
    communicator.all_gather(pattern(rank, kSeveralChunks, at::kFloat), gathered).wait();
    const auto part = torch::zeros({kSeveralChunks}, device());
    communicator.reduce_scatter(gathered, part).wait();
    expect_equal(part, pattern(rank, kSeveralChunks, at::kFloat).mul(world_size), "all_gather and reduce_scatter");
    const auto exchanged = torch::zeros_like(gathered);
    communicator.all_to_all(gathered, exchanged).wait();
    for (int peer = 0; peer < world_size; ++peer) {
      expect_equal(exchanged[peer], pattern(rank, kSeveralChunks, at::kFloat), "all_to_all");
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
        const auto reduced = values(communicator.rank()).to(device());
        communicator.reduce(reduced, world_size - 1, op).wait();
        if (communicator.rank() == world_size - 1) expect_equal(reduced, whole, "reduce");
        const auto part = torch::zeros({17}, on_device(type));
        communicator.reduce_scatter(values(communicator.rank()).to(device()), part, op).wait();
        expect_equal(part, whole.view({world_size, 17})[communicator.rank()], "reduce_scatter");
      }
    }
  });
}

}  // namespace
}  // namespace libtrain
