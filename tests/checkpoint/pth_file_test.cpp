#include <libtrain/checkpoint/detail/pth_file.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/checkpoint/detail/weights_format.hpp>

#include <tests/checkpoint/pth_bytes.hpp>
#include <tests/checkpoint/safetensors_bytes.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::detail {
namespace {

using test::message_of;
using test::pth_part;
using test::sample_parts;
using test::sample_pth;
using test::zip_bytes;
using test::ZipNumbers;
using test::ZipPart;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Pth : public ::testing::Test {
 protected:
  std::string write(std::string_view bytes) const {
    const std::string path = folder_ / "model.pth";
    test::write_file(path, bytes);
    return path;
  }

  // The error of opening the file or of reading one of its storages.
  std::string refusal_of(std::string_view bytes) const {
    return message_of<EnvironmentError>([&] { read_all(PthFile{write(bytes)}); });
  }

  static std::string read_all(const PthFile& file) {
    std::string all;
    for (const auto& tensor : file.tensors()) {
      std::string storage(tensor.storage_bytes, '?');
      file.read_storage(tensor, std::as_writable_bytes(std::span{storage}));
      all += storage;
    }
    return all;
  }

  const test::TemporaryFolder folder_;
};

std::vector<ZipPart> with(ZipPart part) {
  auto parts = sample_parts();
  for (auto& each : parts) {
    if (each.name == part.name) {
      each = part;
      return parts;
    }
  }
  parts.push_back(std::move(part));
  return parts;
}

TEST_F(Pth, ReadsTensorsAndTheirStorages) {
  for (const auto numbers : {ZipNumbers::narrow, ZipNumbers::wide}) {
    const PthFile file{write(zip_bytes(sample_parts(), numbers))};
    ASSERT_EQ(file.tensors().size(), 2U);
    EXPECT_EQ(file.tensors()[1].info.name, "inner.bias");
    EXPECT_EQ(read_all(file), std::string(24, '\1') + std::string(8, '\2'));
  }
}

TEST_F(Pth, RefusesEveryTruncation) {
  const auto whole = sample_pth();
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const auto message = refusal_of(std::string_view{whole}.substr(0, bytes));
    EXPECT_THAT(message, HasSubstr("PyTorch file '" + folder_ / "model.pth"));
  }
  EXPECT_THAT(refusal_of(std::string_view{whole}.substr(0, 1000)), HasSubstr("the end of the zip archive is missing"));
}

TEST_F(Pth, RefusesBytesAfterTheEndAndBeforeTheBeginning) {
  EXPECT_THAT(refusal_of(sample_pth() + "x"), HasSubstr("the end of the zip archive is missing"));
  EXPECT_THAT(refusal_of("x" + sample_pth()), HasSubstr("zip archive is damaged"));
}

TEST_F(Pth, ChecksTheChecksumsOfStorages) {
  auto bytes = sample_pth();
  bytes[bytes.find(std::string(24, '\1')) + 5] ^= 4;
  EXPECT_THAT(refusal_of(bytes), HasSubstr("expected 24 bytes of CRC-32"));
}

// torch.serialization.set_crc32_options(False) makes such files.
TEST_F(Pth, ReadsFilesWithoutChecksums) {
  auto parts = sample_parts();
  for (auto& part : parts) part.has_checksum = false;
  EXPECT_EQ(read_all(PthFile{write(zip_bytes(parts))}).size(), 32U);
}

TEST_F(Pth, RefusesArchivesThatAreNotOfTorchSave) {
  EXPECT_THAT(refusal_of(zip_bytes({{.name = "weights.npy", .bytes = "x"}})), HasSubstr("has no record 'data.pkl'"));
  EXPECT_THAT(refusal_of(zip_bytes({})), HasSubstr("has no record 'data.pkl'"));
  EXPECT_THAT(refusal_of(zip_bytes(with(pth_part("constants.pkl", "x")))), HasSubstr("is a TorchScript archive"));
  EXPECT_THAT(refusal_of(zip_bytes(with(pth_part("byteorder", "big")))), HasSubstr("has the byte order 'big'"));
}

TEST_F(Pth, RefusesPicklesThatNeedCode) {
  const auto pickle = test::pickle_of("cposix\nsystem\n" + test::pickled_text("id") + "\x85R");
  EXPECT_THAT(
      refusal_of(zip_bytes(with(pth_part("data.pkl", pickle)))),
      AllOf(HasSubstr("needs 'posix.system', which is code"), HasSubstr("torch.save(model.state_dict(), path)")));
}

TEST_F(Pth, RefusesStoragesThatAreMissingOrOfAnotherSize) {
  EXPECT_THAT(refusal_of(zip_bytes(with(pth_part("data/1", "1234567")))),
              HasSubstr("expected 8 bytes for the storage of tensor 'inner.bias', found 7"));
  auto parts = sample_parts();
  std::erase_if(parts, [](const auto& part) { return part.name == "archive/data/0"; });
  EXPECT_THAT(refusal_of(zip_bytes(parts)), HasSubstr("the storage of tensor 'weight' is missing"));
}

TEST_F(Pth, RefusesRecordsThatAreCompressedOrDescribedTwice) {
  auto compressed = pth_part("data/0", std::string(24, '\1'));
  compressed.method = 8;
  EXPECT_THAT(refusal_of(zip_bytes(with(compressed))), HasSubstr("is compressed or encrypted"));
  auto parts = sample_parts();
  parts.push_back(parts[1]);
  EXPECT_THAT(refusal_of(zip_bytes(parts)), HasSubstr("'archive/byteorder' is twice"));
  auto renamed = sample_pth();
  renamed[renamed.find("archive/data/0")] = 'A';  // in its own header, not in the directory
  EXPECT_THAT(refusal_of(renamed), HasSubstr("the header of record 'archive/data/0' of the zip archive is damaged"));
}

TEST_F(Pth, RefusesRecordsThatOverlap) {
  auto bytes = zip_bytes(sample_parts(), ZipNumbers::narrow);
  // In the directory, the size of the first record grows into the second.
  const auto entry = bytes.find("PK\1\2");
  for (const std::size_t field : {20, 24}) bytes[entry + field] = static_cast<char>(bytes[entry + field] + 1);
  EXPECT_THAT(refusal_of(bytes), HasSubstr("'archive/byteorder' of the zip archive overlaps another"));
}

TEST(WeightsFormat, IsThatOfTheFirstBytes) {
  const test::TemporaryFolder folder;
  const auto format_of = [&](std::string_view bytes, const std::string& name) {
    test::write_file(folder / name, bytes);
    return weights_format(folder / name);
  };
  EXPECT_EQ(format_of(sample_pth(), "model.safetensors"), WeightsFormat::pth);
  EXPECT_EQ(format_of(test::sample_safetensors(), "model.pth"), WeightsFormat::safetensors);
  EXPECT_EQ(format_of("", "empty.safetensors"), WeightsFormat::safetensors);
  const auto refusal = [&](std::string_view bytes) {
    return message_of<EnvironmentError>([&] { format_of(bytes, "model.bin"); });
  };
  EXPECT_THAT(refusal(""), HasSubstr("model.bin' is empty"));
  EXPECT_THAT(refusal("GGUF\3\2\1\4"), HasSubstr("is neither a safetensors file nor one of torch.save"));
  EXPECT_THAT(refusal(R"({"weight_map": {}})"), HasSubstr("is JSON, not weights"));
  EXPECT_THAT(refusal({"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.", 22}),
              HasSubstr("torch.save's format before PyTorch 1.6"));
}

}  // namespace
}  // namespace libtrain::detail
