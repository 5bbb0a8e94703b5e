#include <libtrain/data/image/detail/scan_decoder.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <libtrain/data/image/detail/libjpeg.hpp>
#include <libtrain/data/image/detail/restart.hpp>
#include <libtrain/data/image/image_header.hpp>

#include <tests/data/image/jpeg_writer.hpp>

namespace libtrain::data::detail {

namespace {

using libtrain::test::all_recipes;
using libtrain::test::JpegRecipe;
using libtrain::test::JpegScans;
using libtrain::test::write_jpeg;

using File = std::vector<std::byte>;
using Block = std::array<std::int16_t, ScanDecoder::kBlockSize>;

/// The positions of an MCU's blocks in their component.
struct Place {
  int component = 0;
  JDIMENSION row = 0;
  JDIMENSION column = 0;
  bool exists = true;  ///< not beyond the right or lower edge
};

/// The blocks of all MCUs in the order of the scan.
std::vector<Place> places_of(const jpeg_decompress_struct& info) {
  std::vector<Place> places;
  for (JDIMENSION y = 0; y < info.MCU_rows_in_scan; ++y) {
    for (JDIMENSION x = 0; x < info.MCUs_per_row; ++x) {
      for (int c = 0; c < info.comps_in_scan; ++c) {
        const jpeg_component_info& component = *info.cur_comp_info[c];
        const auto width = static_cast<JDIMENSION>(component.MCU_width);
        const auto height = static_cast<JDIMENSION>(component.MCU_height);
        for (JDIMENSION i = 0; i < width * height; ++i) {
          const Place place{.component = c, .row = y * height + i / width, .column = x * width + i % width};
          places.push_back(place);
          places.back().exists = place.row < component.height_in_blocks && place.column < component.width_in_blocks;
        }
      }
    }
  }
  return places;
}

/// libjpeg's result for the scan, without a warning, with zeros for blocks that do not exist.
std::vector<Block> libjpeg_blocks(const File& file, std::vector<Place>& places) {
  constexpr long kAnyDamage = 1'000'000;
  const std::string name = "file";
  JpegReader reader(file, name, kAnyDamage);
  jpeg_decompress_struct& info = reader.info();
  jvirt_barray_ptr* arrays = nullptr;
  reader.run([&] {
    jpeg_read_header(&info, TRUE);
    arrays = jpeg_read_coefficients(&info);
  });
  EXPECT_EQ(reader.errors().warnings, 0);
  places = places_of(info);
  std::vector<Block> blocks;
  for (const Place& place : places) {
    Block block = {};
    if (place.exists) {
      const auto common = reinterpret_cast<j_common_ptr>(&info);
      JBLOCKARRAY rows = nullptr;
      reader.run([&] { rows = info.mem->access_virt_barray(common, arrays[place.component], place.row, 1, FALSE); });
      std::copy_n(rows[0][place.column], block.size(), block.begin());
    }
    blocks.push_back(block);
  }
  return blocks;
}

using IsWanted = std::function<bool(std::size_t mcu)>;

bool is_any(std::size_t /*mcu*/) {
  return true;
}

/// The decoder's result, with zeros for MCUs that are skipped; none if it refuses the scan.
std::optional<std::vector<Block>> decoded_blocks(ScanDecoder& decoder, const File& file,
                                                 const IsWanted& is_wanted = is_any) {
  const std::string name = "file";
  JpegReader reader(file, name, 0);
  jpeg_decompress_struct& info = reader.info();
  reader.run([&] {
    jpeg_read_header(&info, TRUE);
    jpeg_start_decompress(&info);
  });
  const auto layout = prepare_scan(info, decoder);
  if (!layout) return std::nullopt;
  const auto offset = static_cast<std::size_t>(parse_jpeg_header(file, name).scan_offset);
  if (!decoder.start(std::span(file).subspan(offset), *layout)) return std::nullopt;
  const std::size_t mcus = std::size_t{info.MCU_rows_in_scan} * info.MCUs_per_row;
  std::vector<Block> blocks(mcus * layout->block_count);
  std::array<std::int16_t*, ScanLayout::kMaxBlocks> to = {};
  for (std::size_t mcu = 0; mcu < mcus; ++mcu) {
    for (std::size_t i = 0; i < layout->block_count; ++i) to[i] = blocks[mcu * layout->block_count + i].data();
    if (!decoder.decode_mcu(is_wanted(mcu) ? to.data() : nullptr)) return std::nullopt;
  }
  return blocks;
}

void expect_same_as_libjpeg(const std::vector<Block>& blocks, const File& file, const std::string& what) {
  std::vector<Place> places;
  const std::vector<Block> wanted = libjpeg_blocks(file, places);
  ASSERT_EQ(blocks.size(), wanted.size()) << what;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (!places[i].exists) continue;
    ASSERT_EQ(blocks[i], wanted[i]) << what << ", block " << i;
  }
}

TEST(ScanDecoder, ReadsTheCoefficientsThatLibjpegReads) {
  ScanDecoder decoder;
  int read = 0;
  for (const JpegRecipe& recipe : all_recipes()) {
    if (recipe.arithmetic || recipe.scans != JpegScans::one) continue;
    const File file = write_jpeg(recipe);
    const auto blocks = decoded_blocks(decoder, file);
    ASSERT_TRUE(blocks.has_value()) << recipe.name;
    ASSERT_NO_FATAL_FAILURE(expect_same_as_libjpeg(*blocks, file, recipe.name));
    ++read;
  }
  EXPECT_GE(read, 20);
}

// At quality 100 the noise fills blocks to their last coefficient, and the next block follows directly.
TEST(ScanDecoder, ReadsBlocksWithoutAnEnd) {
  const File file = write_jpeg({.width = 160, .height = 160, .luma = {2, 2}, .quality = 100});
  ScanDecoder decoder;
  const auto blocks = decoded_blocks(decoder, file);
  ASSERT_TRUE(blocks.has_value());
  expect_same_as_libjpeg(*blocks, file, "quality 100");
  const auto full = std::count_if(blocks->begin(), blocks->end(), [](const Block& block) { return block[63] != 0; });
  EXPECT_GE(full, 100);
}

TEST(ScanDecoder, ReadsLongCodesAndLongNumbers) {
  // Codes made for this image, the rarest of them longer than a lookup.
  const File plain = write_jpeg({.width = 400, .height = 300, .luma = {2, 2}, .quality = 97});
  const auto file = add_restart_markers(plain, {});
  ASSERT_TRUE(file.has_value());
  ScanDecoder decoder;
  const auto blocks = decoded_blocks(decoder, *file);
  ASSERT_TRUE(blocks.has_value());
  expect_same_as_libjpeg(*blocks, *file, "codes made for the picture");
}

// One after the other, and some in a row.
void expect_same_beside_passed_mcus(ScanDecoder& decoder, const JpegRecipe& recipe) {
  const File file = write_jpeg(recipe);
  const auto all = decoded_blocks(decoder, file);
  ASSERT_TRUE(all.has_value()) << recipe.name;
  for (const std::size_t period : {2U, 5U}) {
    const auto some = decoded_blocks(decoder, file, [&](std::size_t mcu) { return mcu % period == 0; });
    const auto others = decoded_blocks(decoder, file, [&](std::size_t mcu) { return mcu % period != 0; });
    ASSERT_TRUE(some.has_value() && others.has_value()) << recipe.name;
    EXPECT_NE((*some)[0], Block{});
    for (std::size_t i = 0; i < all->size(); ++i) {
      const Block& decoded = (*some)[i] == Block{} ? (*others)[i] : (*some)[i];
      const Block& passed = (*some)[i] == Block{} ? (*some)[i] : (*others)[i];
      ASSERT_EQ(decoded, (*all)[i]) << recipe.name << ", block " << i;
      ASSERT_EQ(passed, Block{}) << recipe.name << ", block " << i;
    }
  }
}

TEST(ScanDecoder, PassesOverMcusThatAreNotWanted) {
  ScanDecoder decoder;
  for (const JpegRecipe& recipe : all_recipes()) {
    if (recipe.arithmetic || recipe.scans != JpegScans::one) continue;
    ASSERT_NO_FATAL_FAILURE(expect_same_beside_passed_mcus(decoder, recipe));
  }
  // Blocks that are full, and long codes and numbers.
  expect_same_beside_passed_mcus(decoder, {.width = 160, .height = 160, .luma = {2, 2}, .quality = 100});
}

// The offset of the first marker with this number, 0 to 7.
std::size_t restart_marker(const File& file, int number) {
  const std::array marker{std::byte{0xFF}, static_cast<std::byte>(0xD0 + number)};
  const auto found = std::search(file.begin(), file.end(), marker.begin(), marker.end());
  EXPECT_NE(found, file.end());
  return static_cast<std::size_t>(found - file.begin());
}

TEST(ScanDecoder, DoesNotReadSegmentsThatNobodyWants) {
  constexpr unsigned int kInterval = 5;
  File file = write_jpeg({.width = 100, .height = 80, .luma = {2, 2}, .restart_interval = kInterval});
  ScanDecoder decoder;
  const auto all = decoded_blocks(decoder, file);
  ASSERT_TRUE(all.has_value());
  std::fill(file.begin() + static_cast<std::ptrdiff_t>(restart_marker(file, 0) + 2),
            file.begin() + static_cast<std::ptrdiff_t>(restart_marker(file, 1)), std::byte{0x55});
  EXPECT_FALSE(decoded_blocks(decoder, file).has_value());
  const auto others = decoded_blocks(decoder, file, [](std::size_t mcu) { return mcu / kInterval != 1; });
  ASSERT_TRUE(others.has_value());
  const std::size_t segment = kInterval * 6;  // blocks
  for (std::size_t i = 0; i < all->size(); ++i) {
    ASSERT_EQ((*others)[i], i / segment == 1 ? Block{} : (*all)[i]) << i;
  }
}

// A skipped MCU is read if a later one is decoded.
TEST(ScanDecoder, RefusesDamageBeforeWhatIsWanted) {
  constexpr unsigned int kInterval = 5;
  File file = write_jpeg({.width = 100, .height = 80, .luma = {2, 2}, .restart_interval = kInterval});
  std::fill(file.begin() + static_cast<std::ptrdiff_t>(restart_marker(file, 0) + 2),
            file.begin() + static_cast<std::ptrdiff_t>(restart_marker(file, 1)), std::byte{0x55});
  ScanDecoder decoder;
  EXPECT_FALSE(decoded_blocks(decoder, file, [](std::size_t mcu) { return mcu == 2 * kInterval - 1; }).has_value());
}

TEST(ScanDecoder, RefusesWhatItDoesNotUnderstand) {
  ScanDecoder decoder;
  EXPECT_FALSE(decoded_blocks(decoder, write_jpeg({.luma = {2, 2}, .scans = JpegScans::progressive})).has_value());
  EXPECT_FALSE(decoded_blocks(decoder, write_jpeg({.luma = {2, 2}, .scans = JpegScans::separate})).has_value());
  EXPECT_FALSE(decoded_blocks(decoder, write_jpeg({.luma = {2, 2}, .arithmetic = true})).has_value());
}

TEST(ScanDecoder, RefusesAScanThatNoMarkerEnds) {
  File file = write_jpeg({.luma = {2, 2}});
  ScanDecoder decoder;
  ASSERT_TRUE(decoded_blocks(decoder, file).has_value());
  file.pop_back();
  EXPECT_FALSE(decoded_blocks(decoder, file).has_value()) << "0xFF is the last byte";
  file.pop_back();
  EXPECT_FALSE(decoded_blocks(decoder, file).has_value());
}

TEST(ScanDecoder, RefusesAScanWithoutItsLastBytes) {
  File file = write_jpeg({.luma = {2, 2}});
  file.erase(file.end() - 5, file.end() - 2);
  ScanDecoder decoder;
  EXPECT_FALSE(decoded_blocks(decoder, file).has_value());
}

TEST(ScanDecoder, BytesThatFillTheRoomBeforeAMarkerAreNoDamage) {
  const File file = write_jpeg({.luma = {2, 2}, .restart_interval = 4});
  RestartIndex index;
  ASSERT_TRUE(find_restart_segments(file, parse_jpeg_header(file, "file"), index));
  File filled = file;
  filled.insert(filled.begin() + static_cast<std::ptrdiff_t>(index.starts[2]) - 2, 3, std::byte{0xFF});
  ScanDecoder decoder;
  const auto blocks = decoded_blocks(decoder, filled);
  ASSERT_TRUE(blocks.has_value());
  expect_same_as_libjpeg(*blocks, file, "filled");
}

// libjpeg-turbo does not do the same with them everywhere.
TEST(ScanDecoder, RefusesBytesThatFillTheRoomBeforeData) {
  File file = write_jpeg({.width = 200, .height = 200, .luma = {2, 2}, .quality = 97});
  const auto begin = file.begin() + static_cast<std::ptrdiff_t>(parse_jpeg_header(file, "file").scan_offset);
  constexpr std::array kData = {std::byte{0xFF}, std::byte{0}};
  const auto data = std::search(begin, file.end(), kData.begin(), kData.end());
  ASSERT_NE(data, file.end());
  ScanDecoder decoder;
  ASSERT_TRUE(decoded_blocks(decoder, file).has_value());
  file.insert(data, std::byte{0xFF});
  EXPECT_FALSE(decoded_blocks(decoder, file).has_value());
}

TEST(ScanDecoder, StopsBehindTheLastSegment) {
  File file = write_jpeg({.luma = {2, 2}, .restart_interval = 4});
  const File whole = file;
  ScanDecoder decoder;
  ASSERT_TRUE(decoded_blocks(decoder, file).has_value());
  // Three segments, so the next marker would be RST2: here are others, and much data after them.
  file.insert(file.end() - 2, {std::byte{0xFF}, std::byte{0xD7}});
  file.insert(file.end() - 2, 10'000, std::byte{0x11});
  const auto blocks = decoded_blocks(decoder, file);
  ASSERT_TRUE(blocks.has_value());
  expect_same_as_libjpeg(*blocks, whole, "data behind the last segment");
}

TEST(ScanDecoder, RefusesEmptyAndMissingSegments) {
  const File file = write_jpeg({.luma = {2, 2}, .restart_interval = 4});
  RestartIndex index;
  ASSERT_TRUE(find_restart_segments(file, parse_jpeg_header(file, "file"), index));
  ScanDecoder decoder;
  const auto at = [&](std::size_t segment) {
    return file.begin() + static_cast<std::ptrdiff_t>(index.starts[segment]);
  };
  File empty(file.begin(), at(1));
  empty.insert(empty.end(), at(2) - 2, file.end());
  EXPECT_FALSE(decoded_blocks(decoder, empty).has_value()) << "nothing between RST0 and RST1";
  File shorter(file.begin(), at(1) - 2);
  shorter.insert(shorter.end(), file.end() - 2, file.end());
  EXPECT_FALSE(decoded_blocks(decoder, shorter).has_value()) << "one segment and no more";
}

// A photograph of several MiB, whose memory is not kept, and then one of a few KiB.
TEST(ScanDecoder, ReadsLargeScansAndThenSmallOnes) {
  ScanDecoder decoder;
  for (const int side : {2200, 40, 2200}) {
    const File file = write_jpeg({.width = side, .height = side, .quality = 100});
    const auto blocks = decoded_blocks(decoder, file);
    ASSERT_TRUE(blocks.has_value()) << side;
    ASSERT_NO_FATAL_FAILURE(expect_same_as_libjpeg(*blocks, file, std::to_string(side)));
  }
}

TEST(ScanDecoder, RefusesRestartMarkersThatAreNotAsTheHeaderSays) {
  const File file = write_jpeg({.luma = {2, 2}, .restart_interval = 4});
  RestartIndex index;
  ASSERT_TRUE(find_restart_segments(file, parse_jpeg_header(file, "file"), index));
  ScanDecoder decoder;
  ASSERT_TRUE(decoded_blocks(decoder, file).has_value());
  File swapped = file;
  swapped[index.starts[2] - 1] = std::byte{0xD5};
  EXPECT_FALSE(decoded_blocks(decoder, swapped).has_value()) << "another number";
  File longer = file;
  longer.insert(longer.begin() + static_cast<std::ptrdiff_t>(index.starts[2]) - 2, 1, std::byte{0x5A});
  EXPECT_FALSE(decoded_blocks(decoder, longer).has_value()) << "a byte too many in a segment";
  File unannounced = file;
  constexpr std::array kMarker = {std::byte{0xFF}, std::byte{0xDD}};
  const auto announced = std::search(unannounced.begin(), unannounced.end(), kMarker.begin(), kMarker.end());
  ASSERT_NE(announced, unannounced.end());
  announced[5] = std::byte{0};
  EXPECT_FALSE(decoded_blocks(decoder, unannounced).has_value()) << "no interval";
}

/// A code of one bit for a symbol.
HuffmanCode code_for(std::uint8_t symbol) {
  HuffmanCode code;
  code.counts[1] = 1;
  code.symbols[0] = symbol;
  return code;
}

/// Grey blocks that are each 2047 above the one before, of 13 bits: a zero for the difference of 11 bits, these, and a
/// zero for the end of the block.
File steps(int blocks) {
  std::vector<bool> bits;
  for (int i = 0; i < blocks; ++i) {
    bits.push_back(false);
    bits.insert(bits.end(), 11, true);
    bits.push_back(false);
  }
  bits.resize((bits.size() + 7) / 8 * 8, true);
  File file;
  for (std::size_t i = 0; i < bits.size(); i += 8) {
    unsigned int byte = 0;
    for (std::size_t bit = 0; bit < 8; ++bit) byte = byte << 1 | (bits[i + bit] ? 1U : 0U);
    file.push_back(static_cast<std::byte>(byte));
    if (byte == 0xFF) file.push_back(std::byte{0});
  }
  return file;
}

void append(File& file, std::initializer_list<int> bytes) {
  for (const int byte : bytes) file.push_back(static_cast<std::byte>(byte));
}

ScanDecoder decoder_of_steps() {
  ScanDecoder decoder;
  EXPECT_TRUE(decoder.difference_table(0).build(code_for(11), HuffmanTable::Use::kDifference));
  EXPECT_TRUE(decoder.coefficient_table(0).build(code_for(0), HuffmanTable::Use::kCoefficients));
  return decoder;
}

TEST(ScanDecoder, RefusesCoefficientsOfMoreThan16Bits) {
  File file = steps(17);
  append(file, {0xFF, 0xD9});
  ScanDecoder decoder = decoder_of_steps();
  ASSERT_TRUE(decoder.start(file, {.block_count = 1}));
  for (int i = 1; i <= 16; ++i) {
    Block block = {};
    std::int16_t* const to = block.data();
    ASSERT_TRUE(decoder.decode_mcu(&to)) << i;
    EXPECT_EQ(block[0], 2047 * i);
  }
  EXPECT_FALSE(decoder.decode_mcu(nullptr)) << "34799";
}

// 8 blocks fill 13 bytes.
TEST(ScanDecoder, RefusesAWholeByteThatIsLeftInASegment) {
  for (const bool longer : {false, true}) {
    File file = steps(8);
    if (longer) append(file, {0});
    append(file, {0xFF, 0xD0});
    const File second = steps(1);
    file.insert(file.end(), second.begin(), second.end());
    append(file, {0xFF, 0xD9});
    ScanDecoder decoder = decoder_of_steps();
    ASSERT_TRUE(decoder.start(file, {.block_count = 1, .restart_interval = 8, .segments = 2}));
    Block block = {};
    std::int16_t* const to = block.data();
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(decoder.decode_mcu(&to)) << i;
    EXPECT_EQ(decoder.decode_mcu(&to), !longer);
  }
}

// Sixteen zeros after the last place, whether the MCU is skipped or not.
TEST(ScanDecoder, RefusesZerosBehindABlock) {
  // 0: sixteen zeros; 10: one bit after thirteen zeros; 110: end of block.
  HuffmanCode code;
  code.counts[1] = code.counts[2] = code.counts[3] = 1;
  code.symbols[0] = 0xF0;
  code.symbols[1] = 0xD1;
  ScanDecoder decoder;
  ASSERT_TRUE(decoder.difference_table(0).build(code_for(0), HuffmanTable::Use::kDifference));
  ASSERT_TRUE(decoder.coefficient_table(0).build(code, HuffmanTable::Use::kCoefficients));
  File file;
  append(file, {0b0000'10'1'0, 0b000'110'11, 0xFF, 0xD9});  // three times sixteen, to place 63, four times sixteen, end
  Block block = {};
  std::int16_t* const to = block.data();
  ASSERT_TRUE(decoder.start(file, {.block_count = 1}));
  EXPECT_FALSE(decoder.decode_mcu(&to));
  ASSERT_TRUE(decoder.start(file, {.block_count = 1}));
  EXPECT_FALSE(decoder.decode_mcu(nullptr));
}

// It reads what it does not refuse as libjpeg does, however damaged it is.
TEST(ScanDecoder, ReadsDamagedDataAsLibjpegDoesOrNotAtAll) {
  constexpr int kFiles = 1000;
  ScanDecoder decoder;
  std::mt19937 random(5);
  int accepted = 0;
  for (int i = 0; i < kFiles; ++i) {
    const auto seed = static_cast<unsigned int>(i);
    File file = write_jpeg({.width = 48, .height = 32, .luma = {2, 2}, .quality = 60 + i % 41, .seed = seed});
    const std::size_t begin = static_cast<std::size_t>(parse_jpeg_header(file, "file").scan_offset);
    // Near the end, so that little has to fit by chance; no marker is added or removed.
    const std::size_t place = file.size() - 3 - random() % std::min<std::size_t>(40, file.size() - begin - 3);
    const std::byte changed = file[place] ^ static_cast<std::byte>(1U << random() % 8);
    if (file[place] == std::byte{0xFF} || changed == std::byte{0xFF} || file[place - 1] == std::byte{0xFF}) continue;
    file[place] = changed;
    const auto blocks = decoded_blocks(decoder, file);
    const auto last = decoded_blocks(decoder, file, [](std::size_t mcu) { return mcu == 5; });
    ASSERT_EQ(last.has_value(), blocks.has_value()) << i << ": passing over damage notices as much as reading it";
    if (!blocks) continue;
    ++accepted;
    ASSERT_EQ(last->back(), blocks->back()) << i;
    ASSERT_NO_FATAL_FAILURE(expect_same_as_libjpeg(*blocks, file, std::to_string(i)));
  }
  EXPECT_GE(accepted, 30);
  EXPECT_LE(accepted, kFiles - 30);
}

}  // namespace

}  // namespace libtrain::data::detail
