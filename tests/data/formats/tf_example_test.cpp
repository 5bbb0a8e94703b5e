#include <libtrain/data/formats/detail/tf_example.hpp>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Messages made by hand, with lengths below 128.
std::string delimited(int number, const std::string& content) {
  std::string bytes;
  bytes.push_back(static_cast<char>(number << 3 | 2));
  bytes.push_back(static_cast<char>(content.size()));
  return bytes + content;
}

std::string entry(const std::string& name, const std::string& feature) {
  return delimited(1, delimited(1, name) + delimited(2, feature));
}

std::string example(const std::string& entries) {
  return delimited(1, entries);
}

std::string bytes_list(const std::string& values) {
  return delimited(1, values);
}
std::string float_list(const std::string& values) {
  return delimited(2, values);
}
std::string int64_list(const std::string& values) {
  return delimited(3, values);
}

const std::string kOneFloat("\0\0\x80\x3f", 4);

detail::TfExample parse(const std::string& record) {
  return detail::parse_tf_example(record, "record 7");
}

TEST(TfExample, ReadsBytesAndIntegersAndSkipsFloats) {
  const std::string record =
      example(entry("image", bytes_list(delimited(1, "jpeg"))) + entry("label", int64_list(delimited(1, "\x05"))) +
              entry("box", float_list(delimited(1, kOneFloat + kOneFloat))) +
              entry("unpacked", float_list("\x0d" + kOneFloat)));
  const detail::TfExample result = parse(record);
  ASSERT_EQ(result.features.size(), 4U);
  EXPECT_EQ(result.only_bytes("image", "x"), "jpeg");
  EXPECT_EQ(result.only_int64("label", "x"), 5);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(result.features.at("box")));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(result.features.at("unpacked")));
}

TEST(TfExample, PointsIntoTheRecordInsteadOfCopyingBytes) {
  const std::string record = example(entry("image", bytes_list(delimited(1, "jpeg"))));
  const auto image = parse(record).only_bytes("image", "x");
  EXPECT_EQ(image.data(), record.data() + record.find("jpeg"));
}

TEST(TfExample, ReadsNumbersPackedUnpackedAndMixed) {
  const std::string unpacked = "\x08\x03\x08\x05";
  const std::string mixed = "\x08\x03" + delimited(1, "\x04\x81\x01") + "\x08\x05";
  const detail::TfExample result = parse(example(entry("a", int64_list(unpacked)) + entry("b", int64_list(mixed))));
  EXPECT_EQ(std::get<detail::TfInt64List>(result.features.at("a")), (detail::TfInt64List{3, 5}));
  EXPECT_EQ(std::get<detail::TfInt64List>(result.features.at("b")), (detail::TfInt64List{3, 4, 129, 5}));
}

TEST(TfExample, ReadsNegativeNumbers) {
  const std::string minus_one = std::string(9, '\xff') + '\x01';
  const std::string record = example(entry("n", int64_list(delimited(1, minus_one))));
  EXPECT_EQ(parse(record).only_int64("n", "x"), -1);
}

TEST(TfExample, SkipsUnknownFieldsAtEveryLevel) {
  const std::string unknown = delimited(9, "?") + "\x50\x07" + "\x5d" + kOneFloat;
  const std::string feature = unknown + int64_list(unknown + delimited(1, "\x05")) + unknown;
  const std::string entry_bytes = delimited(1, unknown + delimited(1, "n") + unknown + delimited(2, feature) + unknown);
  const std::string record = unknown + delimited(1, unknown + entry_bytes) + unknown;
  EXPECT_EQ(parse(record).only_int64("n", "x"), 5);
}

TEST(TfExample, SkipsKnownNumbersOfAnotherWireType) {
  const std::string record = example(entry("n", "\x18\x07" + int64_list("\x0d" + kOneFloat + "\x08\x05")));
  EXPECT_EQ(parse(record).only_int64("n", "x"), 5);
}

TEST(TfExample, TakesTheLastOfEntriesAndKinds) {
  const std::string five = int64_list(delimited(1, "\x05"));
  const std::string six = int64_list(delimited(1, "\x06"));
  EXPECT_EQ(parse(example(entry("n", five) + entry("n", six))).only_int64("n", "x"), 6);
  EXPECT_EQ(parse(example(entry("n", bytes_list(delimited(1, "b")) + five))).only_int64("n", "x"), 5);
  const detail::TfExample floats_last = parse(example(entry("n", five + float_list(delimited(1, kOneFloat)))));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(floats_last.features.at("n")));
}

TEST(TfExample, MergesMessagesThatOccurTwice) {
  const std::string five = int64_list(delimited(1, "\x05"));
  const std::string six = int64_list(delimited(1, "\x06"));
  const detail::TfExample two_lists = parse(example(entry("n", five + six)));
  EXPECT_EQ(std::get<detail::TfInt64List>(two_lists.features.at("n")), (detail::TfInt64List{5, 6}));
  EXPECT_EQ(parse(example(entry("a", five)) + example(entry("b", six))).features.size(), 2U);
}

TEST(TfExample, HasDefaultsForWhatIsAbsent) {
  EXPECT_TRUE(parse("").features.empty());
  EXPECT_TRUE(parse(example("")).features.empty());
  const detail::TfExample nothing = parse(example(delimited(1, "")));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(nothing.features.at("")));
  const detail::TfExample empty = parse(example(entry("n", int64_list(""))));
  EXPECT_TRUE(std::get<detail::TfInt64List>(empty.features.at("n")).empty());
}

TEST(TfExample, NamesRecordAndOffsetOfDamage) {
  const auto refusal = [](const std::string& record) { return message_of<EnvironmentError>([&] { parse(record); }); };
  EXPECT_THAT(refusal("\x0a\x7f"), AllOf(HasSubstr("record 7"), HasSubstr("byte 2 "), HasSubstr("127")));
  EXPECT_THAT(refusal(example(entry("n", int64_list(delimited(1, "\x05\x80"))))), HasSubstr("expected 1 more bytes"));
}

TEST(TfExample, SaysWhatItHasWhereAFeatureIsNotAsExpected) {
  const std::string record = example(entry("image", bytes_list(delimited(1, "jpeg") + delimited(1, "png"))) +
                                     entry("score", float_list(delimited(1, kOneFloat))));
  const detail::TfExample result = parse(record);
  EXPECT_THAT(message_of<EnvironmentError>([&] { result.only_bytes("label", "record 7"); }),
              AllOf(HasSubstr("record 7"), HasSubstr("'label'"), HasSubstr("there are 'image', 'score'")));
  EXPECT_THAT(message_of<EnvironmentError>([&] { result.only_bytes("image", "record 7"); }),
              HasSubstr("found 2 bytes values"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { result.only_int64("score", "record 7"); }),
              HasSubstr("expected one int64 value in the feature 'score', found a list of floats or nothing"));
}

TEST(TfExample, SerializesAsByHand) {
  detail::TfExample result;
  result.features["n"] = detail::TfInt64List{5, 129};
  result.features["b"] = detail::TfBytesList{"jpeg", ""};
  result.features["nothing"] = std::monostate{};
  result.features["none"] = detail::TfInt64List{};
  EXPECT_EQ(detail::serialize_tf_example(result),
            example(entry("b", bytes_list(delimited(1, "jpeg") + delimited(1, ""))) +
                    entry("n", int64_list(delimited(1, "\x05\x81\x01"))) + entry("none", int64_list("")) +
                    entry("nothing", "")));
}

TEST(TfExample, RandomExamplesReadBackEqual) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 50; ++round) {
    const std::string content(random() % 500, static_cast<char>(random() & 0xff));
    detail::TfExample written;
    for (std::uint64_t feature = random() % 8; feature > 0; --feature) {
      const std::string name = "feature/" + std::to_string(random() % 1000);
      const std::uint64_t count = random() % 40;
      detail::TfInt64List numbers;
      detail::TfBytesList views;
      for (std::uint64_t i = 0; i < count; ++i) {
        numbers.push_back(static_cast<std::int64_t>(random() >> random() % 64));
        views.push_back(std::string_view{content}.substr(random() % (content.size() + 1)));
      }
      written.features[name + "/numbers"] = numbers;
      written.features[name + "/bytes"] = views;
    }
    const std::string record = detail::serialize_tf_example(written);
    EXPECT_EQ(parse(record).features, written.features);
  }
}

}  // namespace
}  // namespace libtrain::data
