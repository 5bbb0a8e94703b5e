#include <libtrain/train/gather_loader_state.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>

namespace libtrain {
namespace {

using test::message_of;
using test::on_ranks;
using ::testing::HasSubstr;

TEST(GatherLoaderState, HasTheBadSamplesOfAllRanks) {
  on_ranks([](Communicator& communicator) {
    const auto rank = static_cast<std::uint64_t>(communicator.rank());
    data::LoaderState own{.seed = 7, .epoch = 2, .position = 12, .dataset_size = 61, .data = "61 samples"};
    own.bad_samples = {std::vector<std::uint64_t>(rank, 10 + rank)};
    data::LoaderState expected = own;
    expected.bad_samples.clear();
    for (std::uint64_t each = 0; each < static_cast<std::uint64_t>(communicator.world_size()); ++each) {
      expected.bad_samples.emplace_back(each, 10 + each);
    }
    EXPECT_EQ(gather_loader_state(own, communicator), expected);
  });
}

TEST(GatherLoaderState, RefusesRanksAtDifferentPlaces) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    const bool last = communicator.rank() == communicator.world_size() - 1;
    const data::LoaderState own{.epoch = 2, .position = last ? 16u : 12u, .dataset_size = 61};
    EXPECT_THAT(message_of<UsageError>([&] { gather_loader_state(own, communicator); }),
                ::testing::AllOf(HasSubstr("rank 0 has epoch 2, position 12"), HasSubstr("epoch 2, position 16")));
  });
}

}  // namespace
}  // namespace libtrain
