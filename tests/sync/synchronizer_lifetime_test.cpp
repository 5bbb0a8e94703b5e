// Synchronizers that end before their round does, and what outlives them, on ranks as threads and under mpirun.

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn.h>

#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/sync/wire/half_precision.hpp>
#include <libtrain/sync/wire/power_sgd.hpp>

#include <tests/support/device.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/support/pair.hpp>

namespace libtrain {
namespace {

using test::device;
using test::expect_all;
using test::mean_over_ranks;
using test::on_ranks;
using test::Pair;

// A matrix that is large enough for PowerSGD, and a vector that is not.
struct MatrixAndVector : torch::nn::Module {
  at::Tensor matrix = register_parameter("matrix", torch::ones({16, 16}, device()));
  at::Tensor vector = register_parameter("vector", torch::ones({4}, device()));

  /// Its gradient is `of_matrix` and `of_vector` in every element; backward() reaches `vector` first.
  at::Tensor loss(double of_matrix, double of_vector) const {
    const auto sum = matrix.sum() * of_matrix;
    return sum + vector.sum() * of_vector;
  }
};

// Buckets of one parameter each, of every kind: with memory of their own, where autograd leaves the gradient, and with
// something else that travels.
std::vector<SynchronizerOptions> all_kinds_of_buckets() {
  const BucketLimits one_each{.bucket_bytes = 16, .first_bucket_bytes = 16};
  const HalfPrecisionOptions half{.type = at::kHalf, .min_elements = 0};
  const PowerSgdOptions power_sgd{.rank = 1, .start_round = 0};
  return {{.buckets = one_each},
          {.buckets = {.alone_bytes = 1}},
          {.buckets = one_each, .wire_format = std::make_shared<HalfPrecisionWireFormat>(half)},
          {.buckets = one_each, .wire_format = std::make_shared<PowerSgdWireFormat>(power_sgd)}};
}

double own_gradient(const Communicator& communicator) {
  return communicator.rank() + 1;
}

double mean_gradient(const Communicator& communicator) {
  return mean_over_ranks(communicator.world_size(), [](int rank) { return rank + 1; });
}

// Each element is this rank's, or the average that the round under way was for.
void expect_own_or_average(const at::Tensor& gradient, const Communicator& communicator) {
  ASSERT_TRUE(gradient.defined());
  const auto is_own = (gradient - own_gradient(communicator)).abs().lt(1e-6);
  const auto is_average = (gradient - mean_gradient(communicator)).abs().lt(1e-6);
  EXPECT_TRUE(is_own.logical_or(is_average).all().item<bool>()) << gradient;
}

// Gradients add up as without a synchronizer, and a new one averages them again.
void expect_trains_on(MatrixAndVector& model, Communicator& communicator) {
  for (auto& parameter : model.parameters()) parameter.mutable_grad().reset();
  for (int pass = 0; pass < 2; ++pass) model.loss(own_gradient(communicator), 3).backward();
  expect_all(model.matrix.grad(), 2 * own_gradient(communicator), "matrix without a synchronizer");
  expect_all(model.vector.grad(), 6, "vector without a synchronizer");

  GradientSynchronizer synchronizer{model, communicator};
  for (int round = 0; round < 2; ++round) {
    synchronizer.zero_grad();
    model.loss(own_gradient(communicator), 5).backward();
    EXPECT_TRUE(synchronizer.wait());
    expect_all(model.matrix.grad(), mean_gradient(communicator), "matrix");
    expect_all(model.vector.grad(), 5, "vector");
  }
}

TEST(SynchronizerLifetime, MayEndBetweenBackwardAndWait) {
  on_ranks([](Communicator& communicator) {
    for (const auto& options : all_kinds_of_buckets()) {
      MatrixAndVector model;
      {
        const GradientSynchronizer synchronizer{model, communicator, options};
        model.loss(own_gradient(communicator), 2).backward();
      }
      communicator.barrier();  // behind all that was under way
      expect_own_or_average(model.matrix.grad(), communicator);
      expect_all(model.vector.grad(), 2, "vector");
      model.loss(3, 3).backward();
      expect_all(model.vector.grad(), 5, "vector");
      expect_trains_on(model, communicator);
    }
  });
}

TEST(SynchronizerLifetime, MayEndWhenSomeBucketsHaveLeft) {
  on_ranks([](Communicator& communicator) {
    for (const auto& options : all_kinds_of_buckets()) {
      MatrixAndVector model;
      {
        const GradientSynchronizer synchronizer{model, communicator, options};
        (model.vector.sum() * own_gradient(communicator)).backward();
      }
      communicator.barrier();
      expect_own_or_average(model.vector.grad(), communicator);
      EXPECT_FALSE(model.matrix.grad().defined());
      expect_trains_on(model, communicator);
    }
  });
}

TEST(SynchronizerLifetime, MayEndWhileGradientsAccumulate) {
  on_ranks([](Communicator& communicator) {
    MatrixAndVector model;
    {
      GradientSynchronizer synchronizer{model, communicator};
      const auto guard = synchronizer.no_sync();
      model.loss(own_gradient(communicator), 2).backward();
    }
    // Nothing was sent.
    expect_all(model.matrix.grad(), own_gradient(communicator), "matrix");
    expect_trains_on(model, communicator);
  });
}

TEST(SynchronizerLifetime, MayEndTogetherWithItsCommunicator) {
  on_ranks([](Communicator& communicator) {
    for (const auto& options : all_kinds_of_buckets()) {
      MatrixAndVector model;
      {
        const auto own = communicator.split(0, communicator.rank());
        const GradientSynchronizer synchronizer{model, *own, options};
        model.loss(own_gradient(communicator), 2).backward();
      }
      expect_own_or_average(model.matrix.grad(), communicator);
      expect_all(model.vector.grad(), 2, "vector");
      expect_trains_on(model, communicator);
    }
  });
}

TEST(SynchronizerLifetime, AGraphMayOutliveIt) {
  on_ranks([](Communicator& communicator) {
    MatrixAndVector model;
    at::Tensor loss;
    {
      const GradientSynchronizer synchronizer{model, communicator};
      loss = model.loss(own_gradient(communicator), 2);
    }
    loss.backward();
    expect_all(model.matrix.grad(), own_gradient(communicator), "matrix");
    expect_trains_on(model, communicator);
  });
}

TEST(SynchronizerLifetime, ANoSyncGuardMayOutliveIt) {
  on_ranks([](Communicator& communicator) {
    MatrixAndVector model;
    std::optional<GradientSynchronizer::NoSync> guard;
    {
      GradientSynchronizer synchronizer{model, communicator};
      guard.emplace(synchronizer.no_sync());
      model.loss(own_gradient(communicator), 2).backward();
    }
    model.loss(own_gradient(communicator), 2).backward();
    guard.reset();
    model.loss(own_gradient(communicator), 2).backward();
    expect_all(model.matrix.grad(), 3 * own_gradient(communicator), "matrix");
    expect_all(model.vector.grad(), 6, "vector");
    expect_trains_on(model, communicator);
  });
}

// Nothing asks a communicator for memory that has gone, although autograd could still use some of a gradient's size.
TEST(SynchronizerLifetime, ANoSyncGuardMayOutliveModuleAndCommunicator) {
  on_ranks([](Communicator& communicator) {
    std::optional<GradientSynchronizer::NoSync> guard;
    {
      const auto own = communicator.split(0, communicator.rank());
      Pair model;
      GradientSynchronizer synchronizer{model, *own, {.buckets = {.alone_bytes = 1}}};
      guard.emplace(synchronizer.no_sync());
      model.loss(1, 2).backward();
    }
    std::vector<at::Tensor> tensors;
    for (int count = 0; count < 10; ++count) tensors.push_back(torch::full({4}, 1.0 * count, device()));
    guard.reset();
    for (int count = 0; count < 10; ++count) expect_all(tensors[static_cast<std::size_t>(count)], count);
    communicator.barrier();
  });
}

// The destructor removes the hooks: the next synchronizer of the module has nothing to do with an old guard.
TEST(SynchronizerLifetime, ItsHooksGoThoughANoSyncGuardStays) {
  on_ranks([](Communicator& communicator) {
    Pair model;
    std::optional<GradientSynchronizer::NoSync> guard;
    {
      GradientSynchronizer first{model, communicator};
      guard.emplace(first.no_sync());
    }
    GradientSynchronizer second{model, communicator};
    model.loss(own_gradient(communicator), 2).backward();
    guard.reset();
    EXPECT_TRUE(second.wait());
    expect_all(model.left.grad(), mean_gradient(communicator), "left");
    expect_all(model.right.grad(), 2, "right");
  });
}

}  // namespace
}  // namespace libtrain
