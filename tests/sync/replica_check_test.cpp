// Whether replicas are equal, on ranks as threads and under mpirun.

#include <libtrain/sync/replica_check.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/single/single_communicator.hpp>

#include <tests/support/device.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>

namespace libtrain {
namespace {

using test::device;
using test::message_of;
using test::on_device;
using test::on_ranks;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kEqual = "all replicas are equal";

// The same on every rank: 0.weight, 0.bias, 1.weight, 1.bias, 2.weight [2, 3] and 2.bias, beside the buffers of 1.
torch::nn::Sequential make_net() {
  auto net =
      on_device(torch::nn::Sequential{torch::nn::Linear(4, 3), torch::nn::BatchNorm1d(3), torch::nn::Linear(3, 2)});
  const torch::NoGradGuard no_grad;
  for (auto& parameter : net->parameters()) {
    parameter.copy_(torch::arange(parameter.numel(), at::kFloat).add(0.5).view(parameter.sizes()));
  }
  return net;
}

// The lowest bit of the `element`-th float in memory.
void flip_a_bit(const at::Tensor& tensor, std::int64_t element) {
  const auto floats_in_memory = tensor.detach().as_strided({tensor.numel()}, {1});
  floats_in_memory.view(at::kInt)[element].bitwise_xor_(1);
}

at::Tensor parameter_of(const torch::nn::Module& module, const std::string& name) {
  return module.named_parameters()[name];
}

// What the check says on this rank.
std::string verdict(const torch::nn::Module& module, Communicator& communicator, ReplicaCheckOptions options = {}) {
  try {
    check_replicas(module, communicator, options);
  } catch (const UsageError& error) {
    EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
    return error.what();
  }
  return kEqual;
}

TEST(ReplicaCheck, AcceptsEqualReplicasAndEqualNaN) {
  on_ranks([](Communicator& communicator) {
    const auto net = make_net();
    {
      const torch::NoGradGuard no_grad;
      parameter_of(*net, "0.bias").fill_(std::numeric_limits<float>::quiet_NaN());
    }
    EXPECT_EQ(verdict(*net, communicator), kEqual);
    EXPECT_EQ(verdict(torch::nn::Module{"empty"}, communicator), kEqual);
  });
}

TEST(ReplicaCheck, NamesTheTensorAndTheRankOfAFlippedBit) {
  on_ranks([](Communicator& communicator) {
    const int ranks = communicator.world_size();
    for (int odd = 0; odd < ranks && ranks > 1; ++odd) {
      const auto net = make_net();
      if (communicator.rank() == odd) flip_a_bit(parameter_of(*net, "2.weight"), 5);
      const auto found = verdict(*net, communicator);
      EXPECT_THAT(found, HasSubstr("parameter '2.weight' of shape [2, 3] and dtype Float"));
      EXPECT_THAT(found, HasSubstr("(the first of 1 that differ, of 6 tensors)"));
      // Of two ranks neither is right; of more it is the others.
      const auto blamed = ranks == 2 ? 1 : odd;
      EXPECT_THAT(found, HasSubstr(text("has different values on rank ", blamed, " than on rank")));
      for (const auto& other : communicator.all_gather_bytes(found)) EXPECT_EQ(other, found);
    }
  });
}

TEST(ReplicaCheck, NamesTheFirstOfSeveralTensorsAndAllItsRanks) {
  on_ranks([](Communicator& communicator) {
    const int ranks = communicator.world_size();
    if (ranks < 4) return;
    const auto net = make_net();
    // Ranks 1 and 2 differ from the rest, and from each other.
    if (communicator.rank() == 1 || communicator.rank() == 2) {
      flip_a_bit(parameter_of(*net, "0.bias"), communicator.rank());
    }
    if (communicator.rank() == 3) flip_a_bit(parameter_of(*net, "1.weight"), 0);
    const auto found = verdict(*net, communicator);
    EXPECT_THAT(found,
                HasSubstr("parameter '0.bias' of shape [3] and dtype Float has different values on ranks 1 and 2 than "
                          "on ranks 0 and 3"));
    EXPECT_THAT(found, HasSubstr("(the first of 2 that differ, of 6 tensors)"));
    EXPECT_THAT(found, Not(HasSubstr("1.weight")));
  });
}

TEST(ReplicaCheck, ComparesElementsWhateverTheirLayout) {
  on_ranks([](Communicator& communicator) {
    const int last = communicator.world_size() - 1;
    auto convolution = on_device(torch::nn::Conv2d{torch::nn::Conv2dOptions(3, 4, 2).bias(false)});
    {
      const torch::NoGradGuard no_grad;
      convolution->weight.copy_(torch::arange(48, at::kFloat).view({4, 3, 2, 2}));
      if (communicator.rank() == last) {
        convolution->weight.set_data(convolution->weight.contiguous(at::MemoryFormat::ChannelsLast));
      }
    }
    EXPECT_EQ(verdict(*convolution, communicator), kEqual);
    if (communicator.rank() == last) flip_a_bit(convolution->weight, 47);
    if (last == 0) return;
    EXPECT_THAT(verdict(*convolution, communicator), AllOf(HasSubstr("'weight'"), HasSubstr(text("rank ", last))));
  });
}

TEST(ReplicaCheck, TellsZeroFromMinusZero) {
  on_ranks([](Communicator& communicator) {
    const int last = communicator.world_size() - 1;
    torch::nn::Module module{"module"};
    module.register_parameter("zero", torch::full({3}, communicator.rank() == last ? -0.0 : 0.0, device()));
    if (last == 0) return;
    EXPECT_THAT(verdict(module, communicator), HasSubstr("parameter 'zero'"));
  });
}

TEST(ReplicaCheck, ComparesBuffersOnRequest) {
  on_ranks([](Communicator& communicator) {
    const auto net = make_net();
    net->named_buffers()["1.running_mean"].fill_(communicator.rank());
    EXPECT_EQ(verdict(*net, communicator), kEqual);
    if (communicator.world_size() == 1) return;
    EXPECT_THAT(verdict(*net, communicator, {.buffers = true}), HasSubstr("buffer '1.running_mean' of shape [3]"));
  });
}

TEST(ReplicaCheck, SaysWhereModelsDifferRatherThanWeights) {
  on_ranks([](Communicator& communicator) {
    const int last = communicator.world_size() - 1;
    if (last == 0) return;
    auto layer = on_device(torch::nn::Linear{4, communicator.rank() == last ? 5 : 6});
    EXPECT_THAT(verdict(*layer, communicator), HasSubstr("The model differs between ranks"));
  });
}

// Tests have a device without sparse tensors.
TEST(HostOnlyReplicaCheck, RefusesSparseTensors) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    torch::nn::Module module{"module"};
    module.register_parameter("table", torch::ones({2, 2}).to_sparse());
    EXPECT_THAT(message_of<UsageError>([&] { check_replicas(module, communicator); }), HasSubstr("'table' is sparse"));
  });
}

TEST(ReplicaCheck, ChecksAfterEveryNthStep) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    const auto net = make_net();
    if (communicator.rank() == 0) flip_a_bit(parameter_of(*net, "0.weight"), 0);
    ReplicaCheck check{*net, communicator, 3};
    for (const auto* when : {"after step 3:", "after step 6:"}) {
      check.after_step();
      check.after_step();
      EXPECT_THAT(message_of<UsageError>([&] { check.after_step(); }), HasSubstr(when));
    }
    ReplicaCheck never{*net, communicator, 0};
    for (int step = 0; step < 10; ++step) never.after_step();
    EXPECT_THAT(message_of<UsageError>([&] { ReplicaCheck{*net, communicator, -1}; }), HasSubstr("every -1 steps"));
  });
}

// Two ranks that are one, and what they told each other.
class Mirrored : public detail::SingleCommunicator {
 public:
  int world_size() const override { return 2; }
  std::vector<std::string> all_gather_bytes(const std::string& bytes, const CallOptions& /*options*/) override {
    lengths.push_back(bytes.size());
    return {bytes, bytes};
  }

  std::vector<std::size_t> lengths;
};

TEST(ReplicaCheck, ExchangesAFewBytesWhileReplicasAreEqual) {
  Mirrored communicator;
  const auto net = make_net();
  check_replicas(*net, communicator, {.buffers = true});
  ASSERT_EQ(communicator.lengths.size(), 1u);
  EXPECT_LE(communicator.lengths.front(), 20u);
}

// All lengths from 0 to 100 bytes end in each way in a block of 32. The bits are changed where they lie.
TEST(HostOnlyReplicaDigest, DependsOnEveryBitAndOnTheLength) {
  std::set<std::uint64_t> digests;
  std::size_t wanted = 0;
  for (std::int64_t length = 0; length <= 100; ++length) {
    const auto bytes = torch::zeros({length}, at::kByte);
    digests.insert(detail::digest_of(bytes));
    ++wanted;
    auto* const memory = static_cast<std::byte*>(bytes.mutable_data_ptr());
    for (std::int64_t index = 0; index < length; ++index) {
      for (int bit = 0; bit < 8; ++bit) {
        memory[index] ^= std::byte{1} << bit;
        digests.insert(detail::digest_of(bytes));
        memory[index] ^= std::byte{1} << bit;
        ++wanted;
      }
    }
  }
  EXPECT_EQ(digests.size(), wanted);
}

TEST(ReplicaDigest, SeesTwoSignsThatChangeTogether) {
  constexpr std::int64_t kElements = 40;
  const auto values = torch::ones({kElements}, on_device(at::kDouble));
  std::set<std::uint64_t> digests{detail::digest_of(values)};
  std::size_t wanted = 1;
  for (std::int64_t first = 0; first < kElements; ++first) {
    for (std::int64_t second = 0; second < first; ++second) {
      const auto changed = values.clone();
      changed[first].neg_();
      changed[second].neg_();
      digests.insert(detail::digest_of(changed));
      ++wanted;
    }
  }
  EXPECT_EQ(digests.size(), wanted);
}

TEST(ReplicaDigest, DependsOnTheOrderOfElementsNotOnTheirPlaceInMemory) {
  const auto matrix = torch::arange(35, on_device(at::kLong)).view({5, 7});
  const auto transposed_in_memory = matrix.t().contiguous().t();
  EXPECT_EQ(detail::digest_of(transposed_in_memory), detail::digest_of(matrix));
  EXPECT_EQ(detail::digest_of(matrix.narrow(0, 1, 2)), detail::digest_of(matrix.narrow(0, 1, 2).clone()));
  EXPECT_NE(detail::digest_of(matrix.t()), detail::digest_of(matrix));
  EXPECT_NE(detail::digest_of(matrix.flip({0})), detail::digest_of(matrix));
}

}  // namespace
}  // namespace libtrain
