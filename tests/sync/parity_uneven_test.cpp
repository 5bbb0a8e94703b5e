// Ranks with batches of different sizes, or different numbers of them, must train as one process on all data.

#include <gtest/gtest.h>

#include <tests/support/parity.hpp>

namespace libtrain {
namespace {

using test::expect_parity;
using test::Regime;

class ParityUneven : public test::ParityTest {};

TEST_P(ParityUneven, OfBatchesOfDifferentSizes) {
  expect_parity(recipe(Regime::uneven_batches), bound());
}

TEST_P(ParityUneven, OfDifferentNumbersOfBatches) {
  expect_parity(recipe(Regime::uneven_counts), bound());
}

INSTANTIATE_TEST_SUITE_P(Models, ParityUneven,
                         ::testing::Combine(::testing::Values("mlp", "conv", "transformer", "tied", "batch_norm"),
                                            ::testing::Values(at::kDouble, at::kFloat),
                                            ::testing::Values("sgd", "adamw")),
                         test::name_of_cell);

}  // namespace
}  // namespace libtrain
