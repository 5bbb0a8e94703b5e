// Copying a module's state, on ranks as threads and under mpirun.

#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <libtrain/sync/broadcast.hpp>

#include <tests/support/device.hpp>
#include <tests/support/on_ranks.hpp>

namespace libtrain {
namespace {

using test::on_device;
using test::on_ranks;

// Different in every element, in every tensor and on every rank.
at::Tensor numbers(int rank, std::int64_t tensor, at::IntArrayRef shape, at::ScalarType type) {
  return torch::arange(c10::multiply_integers(shape), on_device(at::kLong))
      .add(1000 * rank + 100 * tensor)
      .view(shape)
      .to(type);
}

TEST(BroadcastTensors, CopiesMoreThanOneMessageHoldsFromAnyRoot) {
  on_ranks([](Communicator& communicator) {
    // A message has at most 16 MiB of one dtype: the first and the third have one each, the last but one has several,
    // the last one is sent with nothing after it.
    constexpr std::int64_t kMega = 1 << 20;
    const auto of = [](int rank) {
      return std::vector<at::Tensor>{
          numbers(rank, 0, {3, kMega}, at::kInt),  numbers(rank, 1, {5}, at::kDouble),
          numbers(rank, 2, {2 * kMega}, at::kInt), numbers(rank, 3, {0}, at::kInt),
          numbers(rank, 4, {7}, at::kInt),         numbers(rank, 5, {5, kMega + 1}, at::kInt),
          numbers(rank, 6, {7}, at::kInt),
      };
    };
    const int last = communicator.world_size() - 1;
    const auto tensors = of(communicator.rank());
    broadcast_tensors(tensors, communicator, last);
    const auto wanted = of(last);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_TRUE(torch::equal(tensors[i].cpu(), wanted[i].cpu())) << "tensor " << i;
  });
}

TEST(BroadcastTensors, KeepsTheLayoutOfEachRank) {
  on_ranks([](Communicator& communicator) {
    const int root = communicator.world_size() > 1 ? 1 : 0;  // the second rank's layout is not that of the first
    // The second tensor is sent in parts.
    for (const auto& shape : {std::vector<std::int64_t>{4, 3}, {2000, 2500}}) {
      const auto wanted = numbers(root, 0, shape, at::kFloat);
      const auto mine = numbers(communicator.rank(), 0, shape, at::kFloat);
      const auto transposed = communicator.rank() % 2 == 0 ? mine : mine.t().contiguous().t();
      const auto strides = transposed.strides().vec();
      broadcast_tensors({transposed}, communicator, root);
      EXPECT_TRUE(torch::equal(transposed.cpu(), wanted.cpu()));
      EXPECT_EQ(transposed.strides(), strides);
    }
  });
}

}  // namespace
}  // namespace libtrain
