#include <tools/checkpoint/onnx_model.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/build_info.hpp>
#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::checkpoint_tool {
namespace {

using libtrain::test::message_of;
using ::testing::HasSubstr;

constexpr std::array<float, 2> kTwo{1.5F, -2.0F};

std::span<const std::byte> bytes_of(std::span<const float> values) {
  return std::as_bytes(values);
}

// A field that holds a string, a message or bytes, of at most 127 bytes: tag, length, content (protobuf.dev,
// "Encoding"). The tag is the field's number times 8, plus 2.
std::string field(unsigned char tag, const std::string& content) {
  EXPECT_LT(content.size(), 128U);
  return std::string{static_cast<char>(tag), static_cast<char>(content.size())} + content;
}

// A field that holds a number from 0 to 127. The tag is the field's number times 8.
std::string number(unsigned char tag, unsigned char value) {
  return {static_cast<char>(tag), static_cast<char>(value)};
}

// Field numbers are those of onnx.proto.
TEST(OnnxModelFile, HasTheBytesOfItsMessages) {
  const OnnxModel model{
      .name = "g",
      .inputs = {{.name = "x", .shape = {"N", 3}}, {.name = "z", .type = ElementType::int64, .shape = {"N"}}},
      .output = {.name = "y", .shape = {std::int64_t{5}}},
      .nodes = {{.operation = "Op",
                 .name = "y",
                 .inputs = {"x", "w"},
                 .attributes = {{.name = "f", .value = 1.5F},
                                {.name = "i", .value = std::int64_t{2}},
                                {.name = "s", .value = std::vector<std::int64_t>{0, 7}}}}},
      .weights = {{.name = "w", .shape = {1, 2}}, {.name = "scalar", .shape = {}}},
      .metadata = {{"k", "v"}},
  };
  const test::TemporaryFolder folder;
  write_onnx(folder / "m.onnx", model, [](std::size_t index) { return bytes_of(std::span{kTwo}.first(2 - index)); });

  const std::string one_and_a_half("\0\0\xc0\x3f", 4);
  const std::string minus_two("\0\0\0\xc0", 4);
  const auto attributes =
      field(0x2a, field(0x0a, "f") + '\x15' + one_and_a_half + std::string("\xa0\x01\x01", 3)) +
      field(0x2a, field(0x0a, "i") + number(0x18, 2) + std::string("\xa0\x01\x02", 3)) +
      field(0x2a, field(0x0a, "s") + number(0x40, 0) + number(0x40, 7) + std::string("\xa0\x01\x07", 3));
  const auto node =
      field(0x0a, "x") + field(0x0a, "w") + field(0x12, "y") + field(0x1a, "y") + field(0x22, "Op") + attributes;
  const auto value = [](const std::string& name, const std::string& dimensions, unsigned char type = 1) {
    return field(0x0a, name) + field(0x12, field(0x0a, number(0x08, type) + field(0x12, dimensions)));
  };
  const auto input = value("x", field(0x0a, field(0x12, "N")) + field(0x0a, number(0x08, 3)));
  const auto integers = value("z", field(0x0a, field(0x12, "N")), 7);
  const auto output = value("y", field(0x0a, number(0x08, 5)));
  const auto weight =
      number(0x08, 1) + number(0x08, 2) + number(0x10, 1) + field(0x42, "w") + field(0x4a, one_and_a_half + minus_two);
  const auto scalar = number(0x10, 1) + field(0x42, "scalar") + field(0x4a, one_and_a_half);
  const auto graph = field(0x0a, node) + field(0x12, "g") + field(0x5a, input) + field(0x5a, integers) +
                     field(0x62, output) + field(0x2a, weight) + field(0x2a, scalar);
  ASSERT_GE(graph.size(), 128U);  // a length of two bytes
  ASSERT_LT(graph.size(), 256U);
  const std::string length{static_cast<char>(graph.size()), '\x01'};
  const auto expected = number(0x08, 7) + field(0x12, "libtrain") + field(0x1a, build_info().version) +
                        field(0x42, field(0x0a, "") + number(0x10, 13)) +
                        field(0x72, field(0x0a, "k") + field(0x12, "v")) + '\x3a' + length + graph;
  EXPECT_EQ(test::read_file(folder / "m.onnx"), expected);
  EXPECT_EQ(folder.count(), 1);
}

// 2^29 elements of 4 bytes: one weight, or two.
TEST(OnnxModelFile, IsSmallerThanTwoGigabytes) {
  const test::TemporaryFolder folder;
  const auto refusal = [&](const std::vector<OnnxWeight>& weights) {
    return message_of<UsageError>([&] {
      write_onnx(folder / "m.onnx", {.weights = weights}, [](std::size_t) -> std::span<const std::byte> {
        ADD_FAILURE() << "the size is known before any data";
        return {};
      });
    });
  };
  const auto too_large = HasSubstr("m.onnx': an ONNX file has less than 2 GiB. ");
  EXPECT_THAT(refusal({{.name = "w", .shape = {1 << 29}}}), too_large);
  EXPECT_THAT(refusal({{.name = "w", .shape = {(1 << 29) - 1}}}), too_large);  // its elements fit
  EXPECT_THAT(refusal({{.name = "v", .shape = {1 << 28}}, {.name = "w", .shape = {1 << 28}}}), too_large);
  EXPECT_THAT(refusal({{.name = "w", .shape = {std::int64_t{1} << 40, std::int64_t{1} << 40}}}), too_large);
  EXPECT_EQ(folder.count(), 0);
}

TEST(OnnxModelFile, IsAbsentAfterAnError) {
  const test::TemporaryFolder folder;
  const OnnxModel model{.weights = {{.name = "v", .shape = {2}}, {.name = "w", .shape = {3}}}};
  const auto two = [](std::size_t) { return bytes_of(kTwo); };
  EXPECT_THAT(message_of<UsageError>([&] { write_onnx(folder / "m.onnx", model, two); }),
              HasSubstr("Weight 'w' has 12 bytes, but its data 8. "));
  EXPECT_THAT(message_of<EnvironmentError>([&] { write_onnx(folder / "none/m.onnx", model, two); }),
              HasSubstr("none/m.onnx'"));
  EXPECT_EQ(folder.count(), 0);
}

}  // namespace
}  // namespace libtrain::checkpoint_tool
