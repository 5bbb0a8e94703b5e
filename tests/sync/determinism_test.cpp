// The same run gives the same bits, and so does every choice that should not matter.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tests/support/on_ranks.hpp>
#include <tests/support/training.hpp>

namespace libtrain {
namespace {

using test::on_ranks;
using test::Outcome;
using test::Recipe;
using test::Regime;
using test::TogetherOptions;
using test::train_together;
using test::ZeroGrad;

class Determinism : public ::testing::TestWithParam<const char*> {
 protected:
  Recipe recipe(Regime regime = Regime::plain) const {
    return {.model = GetParam(), .type = at::kFloat, .optimizer = "adamw", .regime = regime};
  }
};

void expect_same_bits(const Outcome& one, const Outcome& other, const std::string& what) {
  EXPECT_TRUE(torch::equal(one.weights.cpu(), other.weights.cpu())) << what;
  EXPECT_TRUE(torch::equal(one.gradients.cpu(), other.gradients.cpu())) << what;
}

// Whether a sum over ranks has the same bits in whatever pieces it is computed. MPI and rings choose the order of the
// terms by size and place; two terms have but one order.
bool sums_in_one_order(const Communicator& communicator) {
  const auto backend = communicator.backend();
  return communicator.world_size() <= 2 || backend == "threads" || backend == "shared_memory";
}

TEST_P(Determinism, RunsAreBitEqual) {
  on_ranks([&](Communicator& communicator) {
    for (const auto regime : {Regime::plain, Regime::accumulation, Regime::uneven_batches}) {
      const auto first = train_together(recipe(regime), communicator);
      const auto second = train_together(recipe(regime), communicator);
      expect_same_bits(first, second, to_string(regime));
    }
  });
}

TEST_P(Determinism, DoesNotDependOnBuckets) {
  struct Variant {
    std::string what;
    SynchronizerOptions options;
  };
  const BucketLimits small{.bucket_bytes = 2000, .first_bucket_bytes = 300, .alone_bytes = BucketLimits::kNever};
  const std::vector<Variant> variants = {
      {"one bucket", {.buckets = {}}},
      {"a bucket a gradient",
       {.buckets = {.bucket_bytes = 1, .first_bucket_bytes = 1, .alone_bytes = BucketLimits::kNever}}},
      {"where autograd leaves them", {.buckets = {.alone_bytes = 1}}},
      {"planned once", {.buckets = small, .replan = false}},
      {"reduced by wait()", {.buckets = small, .overlap = Overlap::none}},
  };
  on_ranks([&](Communicator& communicator) {
    if (!sums_in_one_order(communicator)) return;
    const auto usual = train_together(recipe(), communicator, {.synchronizer = {.buckets = small}});
    for (const auto& variant : variants) {
      const auto other = train_together(recipe(), communicator, {.synchronizer = variant.options});
      expect_same_bits(other, usual, variant.what);
    }
  });
}

TEST_P(Determinism, DoesNotDependOnHowGradientsAreZeroed) {
  on_ranks([&](Communicator& communicator) {
    const auto usual = train_together(recipe(), communicator);
    for (const auto zero_grad : {ZeroGrad::of_optimizer_to_none, ZeroGrad::of_optimizer_to_zero}) {
      const auto other = train_together(recipe(), communicator, {.zero_grad = zero_grad});
      EXPECT_TRUE(torch::equal(other.weights.cpu(), usual.weights.cpu()));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Models, Determinism, ::testing::Values("mlp", "conv", "transformer", "tied", "batch_norm"),
                         [](const auto& test) { return std::string{test.param}; });

}  // namespace
}  // namespace libtrain
