#include <libtrain/checkpoint/safetensors.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

#include <tests/checkpoint/safetensors_bytes.hpp>
#include <tests/support/file_size_limit.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain {
namespace {

using test::message_of;
using test::read_file;
using test::safetensors_bytes;
using test::sample_safetensors;
using test::TemporaryFolder;
using test::write_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr std::string_view kGood = R"("dtype":"U8","shape":[2],"data_offsets":[0,2])";

class Safetensors : public ::testing::Test {
 protected:
  std::string write(std::string_view bytes) const {
    const std::string path = folder_ / "model.safetensors";
    write_file(path, bytes);
    return path;
  }

  SafetensorsFile open(std::string_view header, std::string_view data) const {
    return SafetensorsFile{write(safetensors_bytes(header, data))};
  }

  std::string refusal_of(std::string_view bytes) const {
    return message_of<EnvironmentError>([&] { SafetensorsFile{write(bytes)}; });
  }

  std::string refusal_of(const std::string& header, std::string_view data) const {
    return refusal_of(safetensors_bytes(header, data));
  }

  const TemporaryFolder folder_;
};

std::string content(const SafetensorsFile& file, const StoredTensor& tensor) {
  std::string bytes(tensor.bytes, '?');
  file.read(tensor, std::as_writable_bytes(std::span{bytes}));
  return bytes;
}

TEST_F(Safetensors, ReadsNamesTypesShapesBytesAndMetadata) {
  const SafetensorsFile file{write(sample_safetensors())};
  ASSERT_EQ(file.tensors().size(), 3U);
  const StoredTensor& weight = file.tensors()[0];
  EXPECT_EQ(weight.info.name, "weight");
  EXPECT_EQ(weight.info.type, ElementType::float32);
  EXPECT_THAT(weight.info.shape, ElementsAre(2, 3));
  EXPECT_EQ(content(file, weight), std::string(24, '\1'));
  EXPECT_EQ(file.tensors()[1].info.name, "empty");
  EXPECT_THAT(file.tensors()[1].info.shape, ElementsAre(0, 7));
  EXPECT_EQ(file.tensors()[1].bytes, 0U);
  EXPECT_THAT(file.tensors()[2].info.shape, IsEmpty());
  EXPECT_EQ(content(file, file.tensors()[2]), "\7");
  EXPECT_THAT(file.metadata(), ElementsAre(Pair("format", "pt"), Pair("na\u00efve", "\"\n")));
}

TEST_F(Safetensors, FindsTensorsByName) {
  const SafetensorsFile file{write(sample_safetensors())};
  EXPECT_EQ(file.find("steps"), &file.tensors()[2]);
  EXPECT_EQ(file.find("step"), nullptr);
}

TEST_F(Safetensors, ReadsAFileWithoutTensors) {
  const SafetensorsFile file = open("{}", "");
  EXPECT_THAT(file.tensors(), IsEmpty());
  EXPECT_THAT(file.metadata(), IsEmpty());
}

TEST_F(Safetensors, OrdersTensorsByOffset) {
  const auto file =
      open(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[2,3]},"b":{)" + std::string{kGood} + "}}", "xyz");
  EXPECT_EQ(file.tensors()[0].info.name, "b");
  EXPECT_EQ(content(file, file.tensors()[1]), "z");
}

TEST_F(Safetensors, AllowsSpaceAfterTheHeaderAndFieldsItDoesNotKnow) {
  const auto file = open("{\"b\":{\"color\":{\"of\":[null]}," + std::string{kGood} + "}}  \n\t ", "xy");
  EXPECT_EQ(content(file, file.tensors()[0]), "xy");
}

// RFC 3720, appendix B.4: 32 bytes of zeros, of ones, and ascending.
TEST_F(Safetensors, GivesTheCrc32cOfATensor) {
  std::string ascending(32, '\0');
  std::ranges::generate(ascending, [next = char{0}]() mutable { return next++; });
  const auto file = open(
      R"({"a":{"dtype":"U8","shape":[32],"data_offsets":[0,32]},"b":{"dtype":"U8","shape":[32],"data_offsets":[32,64]},)"
      R"("c":{"dtype":"F64","shape":[4],"data_offsets":[64,96]},"d":{"dtype":"F64","shape":[0],"data_offsets":[96,96]}})",
      std::string(32, '\0') + std::string(32, '\xff') + ascending);
  EXPECT_EQ(file.crc32c(*file.find("a")), 0x8a9136aaU);
  EXPECT_EQ(file.crc32c(*file.find("b")), 0x62a8ab43U);
  EXPECT_EQ(file.crc32c(*file.find("c")), 0x46dd794eU);
  EXPECT_EQ(file.crc32c(*file.find("d")), 0U);
}

TEST_F(Safetensors, RefusesLengthsOfTheHeaderThatCannotBe) {
  EXPECT_THAT(refusal_of(""), HasSubstr("in 8 bytes, found 0 bytes"));
  EXPECT_THAT(refusal_of("{}\0\0\0\0\0"), HasSubstr("in 8 bytes"));
  EXPECT_THAT(refusal_of(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)),
              HasSubstr("a header of at most 2 bytes, found 18446744073709551615"));
  EXPECT_THAT(refusal_of(safetensors_bytes("{}", "").substr(0, 9)), HasSubstr("a header of at most 1 bytes, found 2"));
}

TEST_F(Safetensors, RefusesAHeaderLongerThanTheReferenceReaderTakes) {
  const std::string path = write(std::string("\x01\xe1\xf5\x05\0\0\0\0", 8));  // 100,000,001
  ASSERT_EQ(::truncate(path.c_str(), 8 + 100'000'001), 0);
  EXPECT_THAT(message_of<EnvironmentError>([&] { SafetensorsFile{path}; }), HasSubstr("at most 100000000 bytes"));
}

TEST_F(Safetensors, RefusesHeadersThatAreNotJson) {
  EXPECT_THAT(refusal_of("", ""), HasSubstr("does not begin with '{' at byte offset 8"));
  EXPECT_THAT(refusal_of(" {}", ""), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(refusal_of("\xef\xbb\xbf{}", ""), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(refusal_of("{", ""), HasSubstr("not valid JSON in UTF-8 at byte offset 9"));
  EXPECT_THAT(refusal_of("{}x", ""), HasSubstr("not valid JSON in UTF-8 at byte offset 10"));
  EXPECT_THAT(refusal_of(std::string("{}\0{}", 5), ""), HasSubstr("not valid JSON in UTF-8 at byte offset 10"));
  EXPECT_THAT(refusal_of("{\"\xff\":{" + std::string{kGood} + "}}", "xy"), HasSubstr("UTF-8 at byte offset 10"));
  EXPECT_THAT(refusal_of("{\"\xed\xa0\x80\":{" + std::string{kGood} + "}}", "xy"), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal_of(R"({"\ud800":{)" + std::string{kGood} + "}}", "xy"), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal_of("{\"b\":{" + std::string{kGood} + "},}", "xy"), HasSubstr("not valid JSON"));
}

struct Refused {
  std::string header;
  std::string message;
};

TEST_F(Safetensors, RefusesFieldsThatAreMissingOrOfAnotherKind) {
  const std::vector<Refused> cases{
      {R"({"b":2})", "tensor 'b': expected an object with 'dtype', 'shape' and 'data_offsets', found 2"},
      {R"({"b":[1]})", "tensor 'b': expected an object with 'dtype', 'shape' and 'data_offsets', found an array"},
      {R"({"b":{}})", "tensor 'b': expected the field 'dtype', found none"},
      {R"({"b":{"dtype":"U8","shape":[2]}})", "expected the field 'data_offsets', found none"},
      {R"({"b":{"dtype":"U8","data_offsets":[0,2]}})", "expected the field 'shape', found none"},
      {R"({"b":{"dtype":"U9","shape":[2],"data_offsets":[0,2]}})", "type of the safetensors format, found 'U9'"},
      {R"({"b":{"dtype":"C128","shape":[0],"data_offsets":[0,0]}})", "type of the safetensors format, found 'C128'"},
      {R"({"b":{"dtype":8,"shape":[2],"data_offsets":[0,2]}})", "a string for 'dtype', found 8"},
      {R"({"b":{"dtype":["U8"],"shape":[2],"data_offsets":[0,2]}})", "a string for 'dtype', found an array"},
      {R"({"b":{"dtype":"U8","shape":2,"data_offsets":[0,2]}})", "numbers for 'shape', found 2"},
      {R"({"b":{"dtype":"U8","shape":[-2],"data_offsets":[0,2]}})", "numbers for 'shape', found -2"},
      {R"({"b":{"dtype":"U8","shape":[2.0],"data_offsets":[0,2]}})", "numbers for 'shape', found 2.0"},
      {R"({"b":{"dtype":"U8","shape":["2"],"data_offsets":[0,2]}})", "numbers for 'shape', found a string"},
      {R"({"b":{"dtype":"U8","shape":[[2]],"data_offsets":[0,2]}})", "numbers for 'shape', found an array"},
      {R"({"b":{"dtype":"U8","shape":[null],"data_offsets":[0,2]}})", "numbers for 'shape', found null"},
      {R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2,2]}})", "two numbers in 'data_offsets', found 3"},
      {R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[2]}})", "two numbers in 'data_offsets', found 1"},
      {R"({"b":{"dtype":"U8","shape":[2],"data_offsets":{"0":2}}})", "numbers for 'data_offsets', found an object"},
      {R"({"__metadata__":{"a":1}})", "'__metadata__': expected a string for 'a', found 1"},
      {R"({"__metadata__":{"a":{"b":"c"}}})", "'__metadata__': expected a string for 'a', found an object"},
      {R"({"__metadata__":"a"})", "'__metadata__': expected an object of strings, found a string"},
      {R"({"__metadata__":null})", "'__metadata__': expected an object of strings, found null"},
  };
  for (const auto& [header, message] : cases) EXPECT_THAT(refusal_of(header, "xy"), HasSubstr(message)) << header;
}

TEST_F(Safetensors, RefusesKeysThatAppearTwice) {
  const std::string good{kGood};
  EXPECT_THAT(refusal_of("{\"b\":{" + good + "},\"b\":{" + good + "}}", "xy"),
              HasSubstr("tensor 'b': expected every name once, found it twice"));
  EXPECT_THAT(refusal_of("{\"b\":{" + good + R"(,"shape":[2]}})", "xy"), HasSubstr("found 'shape' twice"));
  EXPECT_THAT(refusal_of(R"({"__metadata__":{"a":"1","a":"1"}})", ""), HasSubstr("found 'a' twice"));
  EXPECT_THAT(refusal_of(R"({"__metadata__":{},"__metadata__":{}})", ""), HasSubstr("found it twice"));
}

TEST_F(Safetensors, RefusesSizesThatDoNotFit) {
  const auto with = [](const std::string& type, const std::string& shape, const std::string& offsets) {
    return R"({"b":{"dtype":")" + type + R"(","shape":[)" + shape + R"(],"data_offsets":[)" + offsets + "]}}";
  };
  EXPECT_THAT(refusal_of(with("U8", "3", "0,2"), "xy"), HasSubstr("expected 3 bytes for U8 of shape [3], found 2"));
  EXPECT_THAT(refusal_of(with("F32", "", "0,2"), "xy"), HasSubstr("expected 4 bytes for F32 of shape [], found 2"));
  EXPECT_THAT(refusal_of(with("U8", "2", "2,0"), "xy"), HasSubstr("found 2 to 0"));
  EXPECT_THAT(refusal_of(with("U8", "4294967296,4294967296", "0,0"), ""), HasSubstr("in whole bytes below 2^60"));
  EXPECT_THAT(refusal_of(with("F64", "4611686018427387904", "0,0"), ""), HasSubstr("in whole bytes below 2^60"));
  EXPECT_THAT(refusal_of(with("F4", "3", "0,2"), "xy"), HasSubstr("in whole bytes"));
  EXPECT_THAT(refusal_of(with("U8", "9223372036854775808,0", "0,0"), ""), HasSubstr("numbers below 2^63 in 'shape'"));
  EXPECT_THAT(refusal_of(with("U8", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "0,1"), "x"), HasSubstr("at most 16 numbers"));
  EXPECT_EQ(open(with("F4", "4", "0,2"), "xy").tensors()[0].bytes, 2U);
  EXPECT_EQ(open(with("F6_E2M3", "4", "0,3"), "xyz").tensors()[0].bytes, 3U);
}

TEST_F(Safetensors, RefusesHolesOverlapsAndTrailingBytes) {
  const auto two = [](const std::string& first, const std::string& second) {
    return R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[)" + first +
           R"(]},"b":{"dtype":"U8","shape":[2],"data_offsets":[)" + second + "]}}";
  };
  EXPECT_EQ(open(two("0,2", "2,4"), "wxyz").tensors().size(), 2U);
  EXPECT_THAT(refusal_of(two("0,2", "3,5"), "vwxyz"),
              HasSubstr("tensor 'b': expected data from 2 on, where the previous "
                        "tensor ends, found 3"));
  EXPECT_THAT(refusal_of(two("1,3", "3,5"), "vwxyz"), HasSubstr("tensor 'a': expected data from 0 on"));
  EXPECT_THAT(refusal_of(two("0,2", "1,3"), "xyz"), HasSubstr("tensor 'b': expected data from 2 on"));
  EXPECT_THAT(refusal_of(two("0,2", "0,2"), "xy"), HasSubstr("tensor 'b': expected data from 2 on"));
  EXPECT_THAT(refusal_of(two("0,2", "2,4"), "wxy"),
              HasSubstr("expected 4 bytes after the header, found 3 (the file is truncated)"));
  EXPECT_THAT(refusal_of(two("0,2", "2,4"), "vwxyz"), HasSubstr("found 5 (the file has trailing bytes)"));
}

TEST_F(Safetensors, RefusesNamesAndNestingBeyondItsLimits) {
  const std::string good{kGood};
  EXPECT_EQ(open("{\"" + std::string(4096, 'n') + "\":{" + good + "}}", "xy").tensors().size(), 1U);
  EXPECT_THAT(refusal_of("{\"" + std::string(4097, 'n') + "\":{" + good + "}}", "xy"),
              HasSubstr("names of at most 4096 bytes, found 4097"));
  EXPECT_THAT(refusal_of(R"({"b":{"more":[[[1]]],)" + good + "}}", "xy"), HasSubstr("nested at most 4 deep"));
  EXPECT_THAT(refusal_of("{\"b\":" + std::string(100'000, '['), ""), HasSubstr("expected an object with 'dtype'"));
}

TEST_F(Safetensors, NamesFilesThatCannotBeOpened) {
  const auto opening = [](const std::string& path) {
    return message_of<EnvironmentError>([&] { SafetensorsFile{path}; });
  };
  EXPECT_THAT(opening(folder_ / "none"),
              AllOf(HasSubstr("Safetensors file '" + folder_ / "none"), HasSubstr("No such")));
  EXPECT_THAT(opening(folder_.path().string()), HasSubstr("Is a directory"));
  const auto pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(opening(pipe), HasSubstr("is a pipe or a device"));
}

TEST_F(Safetensors, SaysWhenTheFileWasTruncatedAfterOpening) {
  const std::string path = write(sample_safetensors());
  const SafetensorsFile file{path};
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(file.tensors()[0].offset + 5)), 0);
  EXPECT_THAT(message_of<EnvironmentError>([&] { content(file, file.tensors()[0]); }),
              AllOf(HasSubstr("expected 19 more bytes"), HasSubstr("truncated while it was read")));
}

TEST_F(Safetensors, RefusesToReadIntoMemoryOfAnotherSize) {
  const SafetensorsFile file{write(sample_safetensors())};
  std::vector<std::byte> memory(23);
  EXPECT_THAT(message_of<UsageError>([&] { file.read(file.tensors()[0], memory); }), HasSubstr("has 24 bytes, but"));
}

class SafetensorsWriter : public Safetensors {
 protected:
  // `data` has the bytes of each tensor.
  std::string written(const std::vector<TensorInfo>& tensors, const std::vector<std::string>& data,
                      const std::map<std::string, std::string>& metadata = {}) const {
    const std::string path = folder_ / "written.safetensors";
    write_safetensors(
        path, tensors, [&](std::size_t index) { return std::as_bytes(std::span{data.at(index)}); }, metadata);
    return path;
  }

  std::string refusal_to_write(const std::vector<TensorInfo>& tensors) const {
    const auto message = message_of<UsageError>([&] { written(tensors, std::vector<std::string>(tensors.size())); });
    EXPECT_EQ(folder_.count(), 0);
    return message;
  }
};

// The header is what Python's safetensors 0.8.0 writes for these tensors.
TEST_F(SafetensorsWriter, WritesTensorsInTheOrderOfTheReference) {
  const auto path = written({{"b", ElementType::uint8, {3}},
                             {"a", ElementType::float32, {}},
                             {"c", ElementType::float64, {1}},
                             {"A", ElementType::float32, {1, 1}}},
                            {"xyz", "aaaa", "cccccccc", "AAAA"}, {{"format", "pt"}});
  std::string header =
      R"({"__metadata__":{"format":"pt"},"c":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},)"
      R"("A":{"dtype":"F32","shape":[1,1],"data_offsets":[8,12]},"a":{"dtype":"F32","shape":[],"data_offsets":[12,16]},)"
      R"("b":{"dtype":"U8","shape":[3],"data_offsets":[16,19]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(read_file(path), safetensors_bytes(header, "ccccccccAAAAaaaaxyz"));
}

TEST_F(SafetensorsWriter, WritesWhatTheReaderReads) {
  const std::map<std::string, std::string> metadata{{"", "\x01\"\\"}, {"\u00e9", "\U0001f600"}};
  const SafetensorsFile file{written({{"\u00e9/\"", ElementType::boolean, {2}}, {"", ElementType::int64, {0}}},
                                     {std::string("\0\1", 2), ""}, metadata)};
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_NE(file.find("\u00e9/\""), nullptr);
  EXPECT_EQ(content(file, *file.find("\u00e9/\"")), std::string("\0\1", 2));
  EXPECT_THAT(file.find("")->info.shape, ElementsAre(0));
  EXPECT_EQ(folder_.count(), 1);
}

TEST_F(SafetensorsWriter, RefusesWhatCouldNotBeReadAgain) {
  EXPECT_THAT(refusal_to_write({{"a", ElementType::uint8, {0}}, {"a", ElementType::int8, {0}}}),
              HasSubstr("Two tensors for a safetensors file are called 'a'"));
  EXPECT_THAT(refusal_to_write({{"__metadata__", ElementType::uint8, {0}}}), HasSubstr("reserved"));
  EXPECT_THAT(refusal_to_write({{std::string(4097, 'n'), ElementType::uint8, {0}}}), HasSubstr("longer than 4096"));
  EXPECT_THAT(refusal_to_write({{"\xff", ElementType::uint8, {0}}}), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(refusal_to_write({{"a", ElementType::complex128, {0}}}), HasSubstr("no complex128"));
  EXPECT_THAT(refusal_to_write({{"a", ElementType::uint8, {-1}}}), HasSubstr("negative or too large"));
  EXPECT_THAT(refusal_to_write({{"a", ElementType::uint8, std::vector<std::int64_t>(17)}}), HasSubstr("more than 16"));
  EXPECT_THAT(refusal_to_write({{"a", ElementType::float32, {1}}}),
              HasSubstr("has 0 bytes of data, but F32 of shape [1] "
                        "needs 4"));
}

TEST_F(SafetensorsWriter, KeepsTheOldFileIfWritingFails) {
  const auto path = written({{"a", ElementType::uint8, {1}}}, {"x"});
  const auto before = read_file(path);
  const test::FileSizeLimit limit{1 << 16};
  EXPECT_THAT(message_of<EnvironmentError>(
                  [&] { written({{"a", ElementType::uint8, {1 << 21}}}, {std::string(1 << 21, 'y')}); }),
              HasSubstr("written.safetensors"));
  EXPECT_EQ(read_file(path), before);
  EXPECT_EQ(folder_.count(), 1);
}

}  // namespace
}  // namespace libtrain
