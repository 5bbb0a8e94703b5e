#include <libtrain/numeric/detail/reduction.hpp>

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/numeric/detail/arithmetic.hpp>
#include <libtrain/numeric/detail/elements.hpp>

#include <tests/numeric/reference_reduction.hpp>

namespace libtrain {
namespace {

using detail::BFloat16;
using detail::Float16;
using test::Bytes;

std::vector<Bytes> samples(int inputs, std::size_t count, DataType type) {
  std::vector<Bytes> result;
  for (int rank = 0; rank < inputs; ++rank) result.push_back(test::sample(rank, count, type));
  return result;
}

void for_each_case(const auto& body) {
  for (const auto type : test::kTypes) {
    for (const auto op : test::kOps) {
      if (op == ReduceOp::average && !is_floating(type)) continue;
      for (const std::size_t count : {0, 1, 2, 3, 17, 1021, 1024, 5000}) {
        SCOPED_TRACE(test::describe(type, op, count));
        body(type, op, count);
      }
    }
  }
}

TEST(Reduction, CombinesAnyNumberOfInputsInPlaceIntoAll) {
  for_each_case([](DataType type, ReduceOp op, std::size_t count) {
    for (const int ranks : {1, 2, 3, 5, 8}) {
      auto buffers = samples(ranks, count, type);
      const auto expected = test::reduced(buffers, type, op);
      std::vector<const void*> inputs;
      std::vector<void*> outputs;
      for (auto& buffer : buffers) {
        inputs.push_back(buffer.data());
        outputs.push_back(buffer.data());
      }
      detail::reduce_blocks(inputs, outputs, count, type, op);
      for (const auto& buffer : buffers) EXPECT_TRUE(buffer == expected) << ranks << " inputs";
    }
  });
}

TEST(Reduction, LeavesInputsAloneWhereOutputsAreElsewhere) {
  for_each_case([](DataType type, ReduceOp op, std::size_t count) {
    for (const int ranks : {1, 2, 3}) {
      const auto buffers = samples(ranks, count, type);
      std::vector<const void*> inputs;
      for (const auto& buffer : buffers) inputs.push_back(buffer.data());
      Bytes output(count * size_of(type));
      const std::vector<void*> outputs{output.data()};
      detail::reduce_blocks(inputs, outputs, count, type, op);
      EXPECT_TRUE(output == test::reduced(buffers, type, op)) << ranks << " inputs";
      EXPECT_TRUE(buffers == samples(ranks, count, type));
    }
  });
}

TEST(Reduction, RefusesToAverageIntegers) {
  std::int32_t value = 1;
  const std::vector<const void*> inputs{&value};
  const std::vector<void*> outputs{&value};
  EXPECT_THROW(detail::reduce_blocks(inputs, outputs, 1, DataType::int32, ReduceOp::average), UsageError);
}

TEST(Reduction, KeepsNotANumberWhoeverBringsIt) {
  for (const auto op : test::kOps) {
    for (std::size_t bringer = 0; bringer < 3; ++bringer) {
      std::vector<float> values{1.0f, 2.0f, 3.0f};
      values[bringer] = std::numeric_limits<float>::quiet_NaN();
      const std::vector<const void*> inputs{&values[0], &values[1], &values[2]};
      float result = 0.0f;
      const std::vector<void*> outputs{&result};
      detail::reduce_blocks(inputs, outputs, 1, DataType::float32, op);
      EXPECT_TRUE(std::isnan(result)) << to_string(op) << " with the NaN of input " << bringer;
    }
  }
}

TEST(Elements, WidenEveryFloat16) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float expected = test::ReferenceFloat16::load(half);
    const float found = detail::widen(static_cast<Float16>(half));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(found)) << bits;
    } else {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(found), std::bit_cast<std::uint32_t>(expected)) << bits;
    }
  }
}

// Every exponent and sign, with mantissas at, beside and between the points where rounding turns over.
TEST(Elements, RoundToTheNearestSixteenBits) {
  std::vector<std::uint32_t> mantissas{0, 1, 0x7fffff, 0x7ff000, 0x7fefff, 0x7f8000, 0x7f7fff, 0x7f8001};
  for (std::uint32_t cut = 11; cut < 23; ++cut) {
    for (const std::uint32_t odd : {0u, 1u}) {
      const auto tie = (1u << cut) | (odd << (cut + 1));
      mantissas.insert(mantissas.end(), {tie & 0x7fffff, (tie - 1) & 0x7fffff, (tie + 1) & 0x7fffff});
    }
  }
  for (std::uint32_t exponent = 0; exponent <= 0x1ff; ++exponent) {
    for (const auto mantissa : mantissas) {
      const auto value = std::bit_cast<float>(exponent << 23 | mantissa);
      const auto half = static_cast<std::uint16_t>(detail::narrow<Float16>(value));
      const auto brain = static_cast<std::uint16_t>(detail::narrow<BFloat16>(value));
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(test::ReferenceFloat16::load(half)));
        EXPECT_TRUE(std::isnan(test::from_bfloat16(brain)));
      } else {
        EXPECT_EQ(half, test::ReferenceFloat16::store(value)) << value;
        EXPECT_EQ(brain, test::to_bfloat16(value)) << value;
      }
    }
  }
}

TEST(Arithmetic, CombinesAndDividesLikeAReduction) {
  for_each_case([](DataType type, ReduceOp op, std::size_t count) {
    if (size_of(type) == 2) return;
    auto buffers = samples(2, count, type);
    const auto expected = test::reduced(buffers, type, op);
    detail::combine(buffers[0].data(), buffers[1].data(), count, type, op);
    if (op == ReduceOp::average) detail::divide(buffers[0].data(), count, type, 2);
    EXPECT_TRUE(buffers[0] == expected);
  });
}

TEST(Arithmetic, RefusesWhatItWouldRoundTwice) {
  std::uint16_t value = 0;
  EXPECT_THROW(detail::combine(&value, &value, 1, DataType::float16, ReduceOp::sum), UsageError);
  EXPECT_THROW(detail::divide(&value, 1, DataType::bfloat16, 2), UsageError);
}

}  // namespace
}  // namespace libtrain
