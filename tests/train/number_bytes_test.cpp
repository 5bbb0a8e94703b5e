#include <libtrain/train/detail/number_bytes.hpp>

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

namespace libtrain::detail {
namespace {

TEST(NumberBytes, KeepEveryBit) {
  const std::vector<double> numbers{0.1, -0.0, std::numeric_limits<double>::infinity(), 5e-324};
  EXPECT_EQ(numbers_of(to_bytes(numbers)), numbers);
  EXPECT_TRUE(std::signbit(numbers_of(to_bytes(numbers))[1]));
  EXPECT_TRUE(std::isnan(numbers_of(to_bytes(std::vector{std::nan("")})).front()));
  EXPECT_TRUE(numbers_of("").empty());
}

TEST(NumberBytes, KeepNamesOfAnyKindAndTheirOrder) {
  const NamedNumbers numbers{{"loss", 1.5}, {"", -2}, {"a b\n12 \xc3\xa9", 3}, {std::string(1, '\0'), 4}, {"loss", 5}};
  EXPECT_EQ(named_numbers_of(to_bytes(numbers)), numbers);
  EXPECT_TRUE(named_numbers_of("").empty());
}

TEST(NumberBytes, RefuseWhatTheyDidNotWrite) {
  EXPECT_THROW(numbers_of("1234567"), CommunicationError);
  const auto bytes = to_bytes(NamedNumbers{{"loss", 1.5}});
  for (std::size_t length = 1; length < bytes.size(); ++length)
    EXPECT_THROW(named_numbers_of(bytes.substr(0, length)), CommunicationError) << length;
  EXPECT_THROW(named_numbers_of(std::string(16, '\xff')), CommunicationError);
}

}  // namespace
}  // namespace libtrain::detail
