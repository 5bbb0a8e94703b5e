#include <libtrain/checkpoint/checkpoint_manifest.hpp>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/checkpoint/manifest_seal.hpp>
#include <tests/data/formats/mutation.hpp>
#include <tests/support/fresh_seed.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain {
namespace {

using test::message_of;
using test::with_right_checksum;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

CheckpointManifest sample() {
  return {.step = 1234,
          .epoch = 2,
          .world_size = 4,
          .libtrain_version = "0.1.0",
          .torch_version = "2.11.0",
          .time = 1764000000,
          .run_ids = {"0123", "abcd"},
          .metrics = {{"accuracy", 0.5}, {"loss", 1.25}},
          .configuration = R"({"lr":0.1,"data":"https://store/data?sig=secret","layers":[1,{"token":"secret"}]})",
          .files = {{.name = "model.safetensors",
                     .bytes = 100,
                     .crc32c = 0xe3069283,
                     .tensors = {{.name = "fc.weight", .offset = 20, .bytes = 80, .crc32c = 1}}},
                    {.name = "loader-00000.json", .bytes = 0, .crc32c = 0}}};
}

// What docs/checkpoints.md says of the bytes.
constexpr const char* kSampleText = R"({
 "format": "libtrain checkpoint",
 "version": 1,
 "step": 1234,
 "epoch": 2,
 "world_size": 4,
 "libtrain": "0.1.0",
 "torch": "2.11.0",
 "time": 1764000000,
 "run_ids": [
  "0123",
  "abcd"
 ],
 "metrics": {
  "accuracy": 0.5,
  "loss": 1.25
 },
 "configuration": {
  "lr": 0.1,
  "data": "https://store/data?***",
  "layers": [
   1,
   {
    "token": "***"
   }
  ]
 },
 "files": [
  {
   "name": "model.safetensors",
   "bytes": 100,
   "crc32c": "0xe3069283",
   "tensors": [
    {
     "name": "fc.weight",
     "offset": 20,
     "bytes": 80,
     "crc32c": "0x00000001"
    }
   ]
  },
  {
   "name": "loader-00000.json",
   "bytes": 0,
   "crc32c": "0x00000000",
   "tensors": []
  }
 ],
 "manifest_crc32c": "0x00000000"
}
)";

CheckpointManifest parse(const std::string& text) {
  return parse_checkpoint_manifest(text, "run/manifest.json");
}

// The sample with `from` replaced by `to`, and the right checksum.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = kSampleText;
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return with_right_checksum(text.replace(at, from.size(), to));
}

TEST(CheckpointManifest, IsWrittenAsDocumented) {
  EXPECT_EQ(to_text(sample()), with_right_checksum(kSampleText));
}

TEST(CheckpointManifest, IsReadAsItWasWritten) {
  auto expected = sample();
  expected.configuration = R"({"lr":0.1,"data":"https://store/data?***","layers":[1,{"token":"***"}]})";
  EXPECT_EQ(parse(to_text(sample())), expected);
  EXPECT_EQ(to_text(parse(to_text(sample()))), to_text(sample()));
}

TEST(CheckpointManifest, KeepsTheLargestNumbers) {
  auto manifest = sample();
  manifest.configuration = "{}";
  manifest.step = manifest.epoch = manifest.time = std::numeric_limits<std::int64_t>::max();
  manifest.world_size = std::numeric_limits<int>::max();
  manifest.metrics = {{"x", std::numeric_limits<double>::denorm_min()}, {"y", 0.1}};
  manifest.files = {{.name = "a",
                     .bytes = std::numeric_limits<std::uint64_t>::max(),
                     .crc32c = 0xffffffff,
                     .tensors = {{.name = "\u00e4\n\"", .offset = 1, .bytes = ~std::uint64_t{0} - 1}}}};
  EXPECT_EQ(parse(to_text(manifest)), manifest);
}

TEST(CheckpointManifest, LeavesOutMetricsThatAreNotFinite) {
  auto manifest = sample();
  manifest.metrics = {{"loss", std::nan("")}, {"norm", -INFINITY}, {"accuracy", 0.0}};
  EXPECT_EQ(parse(to_text(manifest)).metrics, (std::map<std::string, double>{{"accuracy", 0.0}}));
}

TEST(CheckpointManifest, RefusesToWriteWhatCannotBeRead) {
  const std::vector<std::pair<std::function<void(CheckpointManifest&)>, const char*>> cases{
      {[](auto& manifest) { manifest.step = -1; }, "its step is -1"},
      {[](auto& manifest) { manifest.epoch = -1; }, "its epoch is -1"},
      {[](auto& manifest) { manifest.world_size = 0; }, "its world size is 0"},
      {[](auto& manifest) { manifest.run_ids.clear(); }, "it names no run"},
      {[](auto& manifest) { manifest.files[0].name = "../model"; }, "it names a file '../model'"},
      {[](auto& manifest) { manifest.files[1].name = "model.safetensors"; }, "'model.safetensors' twice"},
      {[](auto& manifest) { manifest.files[0].tensors[0].offset = 21; }, "'fc.weight' is not within the 100 bytes"},
      {[](auto& manifest) { manifest.configuration = "[]"; }, "the configuration is not a JSON object"},
      {[](auto& manifest) { manifest.configuration = ""; }, "not valid JSON at byte 1"},
      {[](auto& manifest) { manifest.configuration = R"({"a":1,"a":2})"; }, "it has 'a' twice"},
      {[](auto& manifest) { manifest.libtrain_version = "\xff"; }, "not UTF-8"},
  };
  for (const auto& [change, message] : cases) {
    auto manifest = sample();
    change(manifest);
    EXPECT_THAT(message_of<UsageError>([&] { to_text(manifest); }), HasSubstr(message));
  }
}

TEST(CheckpointManifest, RefusesFileNamesThatCouldLeaveTheFolder) {
  for (const auto* name : {"", ".", "..", "a/b", "/a", ".hidden", "a b", "a\nb", "a\\b", "\u00e4", "manifest.json"}) {
    EXPECT_FALSE(is_checkpoint_file_name(name)) << name;
  }
  EXPECT_FALSE(is_checkpoint_file_name(std::string("a\0b", 3)));
  EXPECT_FALSE(is_checkpoint_file_name(std::string(201, 'a')));
  for (const auto& name : {std::string("model.safetensors"), std::string("a..b-C_9"), std::string(200, 'a')}) {
    EXPECT_TRUE(is_checkpoint_file_name(name)) << name;
  }
}

TEST(CheckpointManifest, SaysWhatIsWrongWithOneOfAnotherProgram) {
  const std::vector<std::tuple<const char*, const char*, const char*>> cases{
      {"libtrain checkpoint", "other", "it is not the manifest of a libtrain checkpoint"},
      {"\"version\": 1", "\"version\": 0", "its version is 0"},
      {"\"version\": 1", "\"version\": \"1\"", "its 'version' is not a whole number"},
      {"\"version\": 1,\n ", "", "it has no 'version'"},
      {"\"step\": 1234,\n ", "", "it has no 'step'"},
      {"\"step\": 1234", "\"step\": -1", "its 'step' is not a whole number"},
      {"\"step\": 1234", "\"step\": 1.5", "its 'step' is not a whole number"},
      {"\"step\": 1234", "\"step\": 9223372036854775808", "its 'step' is not in range"},
      {"\"step\": 1234", "\"step\": 99999999999999999999", "its 'step' is not a whole number"},
      {"\"step\": 1234", "\"step\": 1e999", "a number that is too large"},
      {"\"step\": 1234", "\"step\": 1, \"step\": 2", "it has 'step' twice"},
      {"\"world_size\": 4", "\"world_size\": 2147483648", "its 'world_size' is not in range"},
      {"\"world_size\": 4", "\"world_size\": 0", "its world size is 0"},
      {"\"torch\": \"2.11.0\"", "\"torch\": null", "its 'torch' is not a string"},
      {"\"0123\"", "7", "its 'run_ids' is not an array of strings"},
      {"\"0123\",\n  \"abcd\"", "", "it names no run"},
      {"\"accuracy\": 0.5", "\"accuracy\": \"x\"", "its 'metrics' is not an object of numbers"},
      {"\"model.safetensors\"", "\"../model\"", "it names a file '../model'"},
      {"\"model.safetensors\"", "\"/etc/passwd\"", "it names a file '/etc/passwd'"},
      {"\"model.safetensors\"", "\"loader-00000.json\"", "it names the file 'loader-00000.json' twice"},
      {"\"0xe3069283\"", "3808858755", "its 'crc32c' is not a string"},
      {"\"0xe3069283\"", "\"0xe306928\"", "its 'crc32c' is not 0x and 8 digits"},
      {"\"0xe3069283\"", "\"0xE3069283\"", "its 'crc32c' is not 0x and 8 digits"},
      {"\"0xe3069283\"", "\"\"", "its 'crc32c' is not 0x and 8 digits"},
      {"\"offset\": 20", "\"offset\": 18446744073709551615", "'fc.weight' is not within the 100 bytes"},
      {"\"tensors\": []", "\"tensors\": [1]", "its 'tensors' is not an array of objects"},
      {"\"lr\": 0.1", "\"lr\": NaN", "not valid JSON at byte"},
      {"{\n \"format\"", "[\n \"format\"", "not valid JSON at byte"},
  };
  for (const auto& [from, to, message] : cases) {
    EXPECT_THAT(message_of<CheckpointDamagedError>([&] { parse(changed(from, to)); }),
                AllOf(HasSubstr("'run/manifest.json' is damaged: "), HasSubstr(message), HasSubstr("Use another")))
        << from << " to " << to;
  }
  EXPECT_NO_THROW(parse(changed("1234", "1235")));
}

TEST(CheckpointManifest, RefusesDeepNesting) {
  const std::string deep = std::string(5000, '[') + std::string(5000, ']');
  EXPECT_THAT(message_of<CheckpointDamagedError>([&] { parse(changed("\"lr\": 0.1", "\"lr\": " + deep)); }),
              HasSubstr("levels deep"));
}

TEST(CheckpointManifest, NamesANewerVersion) {
  const auto message = message_of<CheckpointVersionError>([] { parse(changed("\"version\": 1", "\"version\": 2")); });
  EXPECT_THAT(message, AllOf(HasSubstr("'run/manifest.json' has version 2"), HasSubstr("reads version 1")));
}

TEST(CheckpointManifest, NoticesEveryChangedByteAndEveryLength) {
  const auto whole = to_text(sample());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const int bit : {0, 3, 5, 7}) {
      auto text = whole;
      text[i] = static_cast<char>(text[i] ^ 1 << bit);
      EXPECT_THROW(parse(text), CheckpointDamagedError) << i;
    }
    EXPECT_THROW(parse(whole.substr(0, i)), CheckpointDamagedError) << i;
  }
  EXPECT_THROW(parse(whole + "\n"), CheckpointDamagedError);
}

// Half of them get the right checksum again.
TEST(CheckpointManifest, ReadsOrRefusesEveryDamagedText) {
  const test::FreshSeed seed;
  int read = 0;
  int refused = 0;
  for (std::uint64_t i = 0; i < 10000; ++i) {
    auto text = data::Mutator(seed.value + i).mutate(to_text(sample()));
    if (i % 2 == 1) text = with_right_checksum(std::move(text));
    try {
      const auto manifest = parse(text);
      EXPECT_NO_THROW(to_text(manifest));
      ++read;
    } catch (const EnvironmentError&) {
      ++refused;
    }
  }
  EXPECT_GT(read, 20);
  EXPECT_GT(refused, 5000);
}

TEST(CheckpointManifest, SendsFilesBetweenRanks) {
  const auto files = sample().files;
  EXPECT_EQ(parse_checkpoint_files(to_text(files)), files);
  EXPECT_TRUE(parse_checkpoint_files(to_text(std::vector<CheckpointFile>{})).empty());
  EXPECT_THAT(message_of<UsageError>([] { parse_checkpoint_files("{}"); }), HasSubstr("it is not an array"));
  EXPECT_THAT(message_of<UsageError>([] { parse_checkpoint_files("["); }), HasSubstr("not valid JSON"));
}

}  // namespace
}  // namespace libtrain
