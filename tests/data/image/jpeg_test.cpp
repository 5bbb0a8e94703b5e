#include <libtrain/data/image/detail/jpeg.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/image/detail/restart.hpp>
#include <libtrain/data/image/image_header.hpp>

#include <tests/data/image/decoders.hpp>
#include <tests/data/image/jpeg_writer.hpp>
#include <tests/data/image/pictures.hpp>
#include <tests/data/image/smooth_picture.hpp>
#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {

namespace {

using libtrain::test::all_recipes;
using libtrain::test::cropped;
using libtrain::test::decode_jpeg;
using libtrain::test::JpegColor;
using libtrain::test::message_of;
using libtrain::test::reference_decode;
using libtrain::test::write_jpeg;
using test::constant_picture;
using test::mean_difference;
using test::random_crop;
using test::smooth_picture;
using test::words_for;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void expect_same(const Image& actual, const Image& wanted, const std::string& what) {
  ASSERT_EQ(actual.width, wanted.width) << what;
  ASSERT_EQ(actual.height, wanted.height) << what;
  ASSERT_EQ(actual.channels, wanted.channels) << what;
  ASSERT_TRUE(actual.pixels == wanted.pixels) << what;
}

TEST(JpegDecoder, DecodesAsPlainLibjpegDoes) {
  detail::JpegDecoder decoder;
  for (const auto& recipe : all_recipes()) {
    const auto file = write_jpeg(recipe);
    expect_same(decoder.decode(file), reference_decode(file), recipe.name);
  }
}

TEST(JpegDecoder, ScalesAsPlainLibjpegDoes) {
  detail::JpegDecoder decoder;
  for (const auto& recipe : all_recipes()) {
    const auto file = write_jpeg(recipe);
    for (const int scale : {2, 4, 8}) {
      const Image image = decoder.decode(file, {.scale_denominator = scale});
      EXPECT_EQ(image.width, (recipe.width + scale - 1) / scale);
      expect_same(image, reference_decode(file, scale), recipe.name);
    }
  }
}

TEST(JpegDecoder, ARectangleHasThePixelsThatItHasInTheWholePicture) {
  constexpr int kCropsOfEach = 25;
  detail::JpegDecoder decoder;
  std::mt19937 random(3);
  for (const auto& recipe : all_recipes()) {
    const auto file = write_jpeg(recipe);
    for (const int scale : {1, 1, 2, 4, 8}) {
      const Image whole = reference_decode(file, scale);
      for (int i = 0; i < kCropsOfEach; ++i) {
        const Crop crop = random_crop(random, whole.width, whole.height);
        const Image part = decoder.decode(file, {.scale_denominator = scale, .crop = crop});
        const std::string what = recipe.name + " at 1/" + std::to_string(scale) + ", " + words_for(crop);
        ASSERT_NO_FATAL_FAILURE(expect_same(part, cropped(whole, crop), what));
      }
    }
  }
}

// Every begin and end of a rectangle's columns and rows around the borders of MCUs, where chroma is upsampled, with one
// to four pixels in the last MCU.
TEST(JpegDecoder, EveryPlaceOfANarrowRectangleIsExact) {
  detail::JpegDecoder decoder;
  for (const int width : {81, 82, 83, 84}) {
    const auto file = write_jpeg({.width = width, .height = 53, .luma = {2, 2}});
    const Image whole = reference_decode(file);
    for (int x = 0; x < whole.width; ++x) {
      for (int y = 0; y < whole.height; y += 3) {
        const Crop crop{.x = x, .y = y, .width = std::min(3, whole.width - x), .height = std::min(2, whole.height - y)};
        const std::string what = words_for(crop) + " of " + std::to_string(width);
        ASSERT_NO_FATAL_FAILURE(expect_same(decoder.decode(file, {.crop = crop}), cropped(whole, crop), what));
      }
    }
  }
}

TEST(JpegDecoder, GreyIsRoundedLuma) {
  for (const auto color : {JpegColor::ycc, JpegColor::cmyk, JpegColor::grey}) {
    const auto file = write_jpeg({.color = color});
    const Image rgb = reference_decode(file);
    const Image grey = decode_jpeg(file, {.channels = 1});
    ASSERT_EQ(grey.channels, 1);
    ASSERT_EQ(grey.pixels.size() * 3, rgb.pixels.size());
    for (std::size_t i = 0; i < grey.pixels.size(); ++i) {
      const double luma = 0.299 * rgb.pixels[3 * i] + 0.587 * rgb.pixels[3 * i + 1] + 0.114 * rgb.pixels[3 * i + 2];
      ASSERT_NEAR(grey.pixels[i], luma, 0.51);
    }
    if (color == JpegColor::grey) {
      for (std::size_t i = 0; i < grey.pixels.size(); ++i) ASSERT_EQ(grey.pixels[i], rgb.pixels[3 * i]);
    }
  }
}

TEST(JpegDecoder, DoesNotDependOnWhatWasDecodedBefore) {
  const auto first = write_jpeg({.quality = 95});
  const auto second = write_jpeg({.width = 30, .color = JpegColor::grey, .quality = 20});
  // The same without its tables, which libjpeg would take from the file before if it could.
  std::vector<std::byte> bare(second.begin(), second.begin() + 2);
  for (std::size_t place = 2; place + 4 < second.size();) {
    const auto code = std::to_integer<int>(second[place + 1]);
    const auto length = static_cast<std::size_t>(std::to_integer<int>(second[place + 2]) << 8 |
                                                 std::to_integer<int>(second[place + 3]));
    const std::size_t end = code == 0xDA ? second.size() : place + 2 + length;
    if (code != 0xDB) {
      bare.insert(bare.end(), second.begin() + static_cast<std::ptrdiff_t>(place),
                  second.begin() + static_cast<std::ptrdiff_t>(end));
    }
    place = end;
  }
  ASSERT_LT(bare.size(), second.size());
  detail::JpegDecoder decoder;
  decoder.decode(first);
  EXPECT_THAT(message_of<EnvironmentError>([&] { decoder.decode(bare); }), HasSubstr("Quantization table"));
  expect_same(decoder.decode(second), reference_decode(second), "after an error");
}

TEST(JpegDecoder, ATruncatedFileIsAnErrorThatSaysWhere) {
  const auto whole = write_jpeg({.width = 200, .height = 150, .luma = {2, 2}});
  const std::vector<std::byte> half(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(whole.size() / 2));
  const auto message = message_of<EnvironmentError>([&] { decode_jpeg(half, {.name = "cat.jpg"}); });
  EXPECT_THAT(message,
              AllOf(HasSubstr("JPEG 'cat.jpg', byte offset " + std::to_string(half.size())), HasSubstr("truncated")));
}

TEST(JpegDecoder, ARectangleAboveTheDamageIsNotConcerned) {
  const auto whole = write_jpeg({.width = 200, .height = 150, .luma = {2, 2}});
  const std::vector<std::byte> half(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(whole.size() / 2));
  const Crop crop{.x = 20, .y = 2, .width = 100, .height = 20};
  expect_same(decode_jpeg(half, {.crop = crop}), cropped(reference_decode(whole), crop), "upper part");
}

// A file of one MCU a restart segment, of which all but the first ten, `holes` segments, lack most of their data.
std::vector<std::byte> file_with_holes(long& holes) {
  holes = 0;
  const auto whole = write_jpeg({.width = 200, .height = 150, .luma = {2, 2}, .restart_interval = 1});
  detail::RestartIndex index;
  EXPECT_TRUE(detail::find_restart_segments(whole, parse_jpeg_header(whole, "whole"), index));
  std::vector<std::byte> file(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(index.starts.front()));
  for (std::size_t i = 0; i + 1 < index.starts.size(); ++i) {
    const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(index.starts[i]);
    const auto end = whole.begin() + static_cast<std::ptrdiff_t>(index.starts[i + 1]);
    // Two bytes are too few for six blocks; a 0xFF would need a zero after it.
    const bool keep_all = i < 10 || begin[0] == std::byte{0xFF} || begin[1] == std::byte{0xFF};
    file.insert(file.end(), begin, keep_all ? end : begin + 2);
    if (keep_all) continue;
    file.insert(file.end(), end - 2, end);
    ++holes;
  }
  return file;
}

TEST(JpegDecoder, RefusesMoreDamageThanAllowed) {
  long holes = 0;
  const auto file = file_with_holes(holes);
  const auto message =
      message_of<EnvironmentError>([&] { decode_jpeg(file, {.name = "cat.jpg", .maximum_warnings = 3}); });
  EXPECT_THAT(message, AllOf(HasSubstr("JPEG 'cat.jpg', byte offset "), HasSubstr("(4 damaged places)")));
  EXPECT_EQ(decode_jpeg(file, {.maximum_warnings = 1'000'000}).width, 200);
}

TEST(JpegDecoder, CountsTheDamagedPlacesOfTheLastPicture) {
  long holes = 0;
  const auto file = file_with_holes(holes);
  ASSERT_GT(holes, 20);
  detail::JpegDecoder decoder;
  decoder.decode(file, {.maximum_warnings = 1'000'000});
  EXPECT_EQ(decoder.damaged_places(), holes);
  decoder.decode(write_jpeg({.luma = {2, 2}}));
  EXPECT_EQ(decoder.damaged_places(), 0);
}

// As several files of ImageNet have them.
TEST(JpegDecoder, BytesBetweenMarkersAreNoDamage) {
  const auto file = write_jpeg({.luma = {2, 2}});
  std::vector<std::byte> longer(file.begin(), file.begin() + 2);
  longer.resize(4, std::byte{0x12});
  longer.insert(longer.end(), file.begin() + 2, file.end());
  expect_same(decode_jpeg(longer, {.maximum_warnings = 0}), reference_decode(file), "two bytes after the first marker");
}

TEST(JpegDecoder, RefusesPicturesThatAreTooLarge) {
  const auto file = write_jpeg({.width = 64, .height = 48});
  EXPECT_EQ(decode_jpeg(file, {.maximum_pixels = 64 * 48}).width, 64);
  EXPECT_THAT(message_of<EnvironmentError>([&] { decode_jpeg(file, {.maximum_pixels = 64 * 48 - 1}); }),
              HasSubstr("64 x 48 pixels, expected at most 3071"));
}

TEST(JpegDecoder, RefusesAFileTooShortForItsSizeBeforeAllocating) {
  auto file = write_jpeg({.width = 64, .height = 48});
  for (std::size_t i = 0; i + 9 < file.size(); ++i) {
    if (file[i] != std::byte{0xFF} || file[i + 1] != std::byte{0xC0}) continue;
    for (std::size_t byte = 5; byte < 9; ++byte) file[i + byte] = std::byte{0x34};
    break;
  }
  EXPECT_THAT(message_of<EnvironmentError>([&] { decode_jpeg(file); }),
              AllOf(HasSubstr("13364 x 13364 pixels"), HasSubstr("truncated")));
}

TEST(JpegDecoder, RefusesOptionsThatDoNotFit) {
  const auto file = write_jpeg({.width = 64, .height = 48});
  const auto error = [&](const DecodeOptions& options) {
    return message_of<UsageError>([&] { decode_jpeg(file, options); });
  };
  EXPECT_THAT(error({.channels = 4}), HasSubstr("channels is 4"));
  EXPECT_THAT(error({.scale_denominator = 3}), HasSubstr("scale_denominator is 3"));
  EXPECT_THAT(error({.crop = Crop{.x = 60, .y = 0, .width = 5, .height = 1}}), HasSubstr("64 x 48 pixels"));
  EXPECT_THAT(error({.crop = Crop{.x = -1, .y = 0, .width = 5, .height = 1}}), HasSubstr("(-1, 0)"));
  EXPECT_THAT(error({.crop = Crop{.x = 0, .y = 0, .width = 0, .height = 1}}), HasSubstr("0 x 1 pixels"));
  EXPECT_THAT(error({.scale_denominator = 2, .crop = Crop{.x = 0, .y = 0, .width = 33, .height = 1}}),
              HasSubstr("32 x 24 pixels"));
  EXPECT_THAT(error({.maximum_warnings = -1}), HasSubstr("maximum_warnings is -1"));
}

using File = std::vector<std::byte>;

int largest_difference(const Image& left, const Image& right) {
  int difference = 0;
  for (std::size_t i = 0; i < left.pixels.size(); ++i) {
    difference = std::max(difference, std::abs(left.pixels[i] - right.pixels[i]));
  }
  return difference;
}

// The steps of brightness for no, one horizontal and one vertical half-wave: the first three of the first table.
std::vector<int> first_quantization_steps(const File& file) {
  constexpr std::array kTable{std::byte{0xFF}, std::byte{0xDB}, std::byte{0}, std::byte{67}, std::byte{0}};
  const auto found = std::search(file.begin(), file.end(), kTable.begin(), kTable.end());
  if (file.end() - found < 8) return {};
  return {std::to_integer<int>(found[5]), std::to_integer<int>(found[6]), std::to_integer<int>(found[7])};
}

TEST(JpegEncoder, KeepsASmoothPicture) {
  for (const auto subsampling : {detail::ChromaSubsampling::yuv444, detail::ChromaSubsampling::yuv420}) {
    const Image picture = smooth_picture(121, 83, 3);
    const Image decoded = reference_decode(detail::encode_jpeg(picture, {.subsampling = subsampling}));
    ASSERT_EQ(decoded.width, 121);
    ASSERT_EQ(decoded.height, 83);
    EXPECT_LT(mean_difference(decoded, picture), 1);
    EXPECT_LE(largest_difference(decoded, picture), 10);
  }
}

TEST(JpegEncoder, KeepsGreyPicturesGrey) {
  const Image picture = smooth_picture(50, 30, 1);
  const File file = detail::encode_jpeg(picture);
  EXPECT_EQ(parse_jpeg_header(file, "file").component_count, 1);
  const Image decoded = decode_jpeg(file, {.channels = 1});
  ASSERT_EQ(decoded.pixels.size(), picture.pixels.size());
  EXPECT_LT(mean_difference(decoded, picture), 1);
}

// A constant block is its mean alone, and 128 the value that its code counts from.
TEST(JpegEncoder, KeepsAConstantGreyExactly) {
  const Image picture = constant_picture(20, 10, 1, 128);
  EXPECT_EQ(decode_jpeg(detail::encode_jpeg(picture, {.quality = 30}), {.channels = 1}).pixels, picture.pixels);
}

TEST(JpegEncoder, SubsamplesAsAskedFor) {
  const Image picture = smooth_picture(40, 40, 3);
  const JpegHeader half = parse_jpeg_header(detail::encode_jpeg(picture), "file");
  EXPECT_EQ(half.components[0].horizontal_sampling, 2);
  EXPECT_EQ(half.components[0].vertical_sampling, 2);
  EXPECT_EQ(half.components[1].horizontal_sampling, 1);
  EXPECT_EQ(half.components[2].vertical_sampling, 1);
  const JpegHeader full =
      parse_jpeg_header(detail::encode_jpeg(picture, {.subsampling = detail::ChromaSubsampling::yuv444}), "file");
  EXPECT_EQ(full.maximum_horizontal_sampling(), 1);
  EXPECT_EQ(full.maximum_vertical_sampling(), 1);
}

// ITU-T T.81, table K.1, begins 16, 11, 12; libjpeg halves its steps at quality 75 and takes a tenth at 95, where
// (16 * 10 + 50) / 100 = 2 and the others are 1.
TEST(JpegEncoder, QuantizesByTheQuality) {
  const Image picture = smooth_picture(40, 40, 3);
  EXPECT_THAT(first_quantization_steps(detail::encode_jpeg(picture, {.quality = 50})), ElementsAre(16, 11, 12));
  EXPECT_THAT(first_quantization_steps(detail::encode_jpeg(picture, {.quality = 75})), ElementsAre(8, 6, 6));
  EXPECT_THAT(first_quantization_steps(detail::encode_jpeg(picture)), ElementsAre(2, 1, 1));
}

TEST(JpegEncoder, WritesRestartMarkersWhereTheyAreAskedFor) {
  const Image picture = smooth_picture(128, 48, 3);  // rows of 8 MCUs
  const File plain = detail::encode_jpeg(picture);
  EXPECT_EQ(parse_jpeg_header(plain, "file").restart_interval, 0);
  const File file = detail::encode_jpeg(picture, {.restart_interval = 4});
  const JpegHeader header = parse_jpeg_header(file, "file");
  EXPECT_EQ(header.restart_interval, 4);
  detail::RestartIndex index;
  ASSERT_TRUE(detail::find_restart_segments(file, header, index));
  EXPECT_EQ(index.starts.size(), 2u * 3u + 1u);
  EXPECT_TRUE(reference_decode(file).pixels == reference_decode(plain).pixels);
}

TEST(JpegEncoder, RefusesWhatNoJpegHas) {
  const Image picture = smooth_picture(8, 8, 3);
  const auto refuses = [&](const detail::JpegEncoderOptions& options) {
    return message_of<UsageError>([&] { detail::encode_jpeg(picture, options); });
  };
  EXPECT_THAT(refuses({.quality = 0}), HasSubstr("::quality is 0, expected 1 to 100"));
  EXPECT_THAT(refuses({.quality = 101}), HasSubstr("101"));
  EXPECT_THAT(refuses({.restart_interval = -1}), HasSubstr("::restart_interval is -1, expected 0 to 65535"));
  EXPECT_THAT(refuses({.restart_interval = 65536}), HasSubstr("::restart_interval is 65536"));
  EXPECT_THAT(message_of<UsageError>([] { detail::encode_jpeg(constant_picture(65501, 1, 1, 0)); }),
              HasSubstr("65501 x 1"));
  EXPECT_THAT(message_of<UsageError>([] { detail::encode_jpeg(Image{.width = 2, .height = 2}); }),
              HasSubstr("0 bytes"));
}

}  // namespace

}  // namespace libtrain::data

namespace libtrain::data::detail {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::optional<Image> decode(std::span<const std::byte> file, const DecodeOptions& options) {
  const Image whole = libtrain::test::reference_decode(file, options.scale_denominator);
  return options.crop ? libtrain::test::cropped(whole, *options.crop) : whole;
}

using Flaw = std::function<void(const DecodeOptions& options, std::optional<Image>& image)>;

bool is_accepted(const Flaw& flaw) {
  const libtrain::test::CapturedLog log;
  const bool accepted = check_fast_scan(
      [&](std::span<const std::byte> file, const DecodeOptions& options) {
        auto image = decode(file, options);
        flaw(options, image);
        return image;
      },
      decode);
  if (accepted) {
    EXPECT_THAT(log.lines(), IsEmpty());
  } else {
    EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("warning: ")));
  }
  return accepted;
}

TEST(FastScanCheck, AcceptsEqualPixels) {
  EXPECT_TRUE(is_accepted([](const DecodeOptions&, std::optional<Image>&) {}));
}

TEST(FastScanCheck, FindsAWrongPixelInEveryKindOfPicture) {
  for (const int scale : {1, 2}) {
    for (const bool in_part : {false, true}) {
      bool met = false;
      EXPECT_FALSE(is_accepted([&](const DecodeOptions& options, std::optional<Image>& image) {
        if (options.scale_denominator != scale || options.crop.has_value() != in_part) return;
        image->pixels.back() ^= 1;
        met = true;
      }));
      EXPECT_TRUE(met) << scale << in_part;
    }
  }
}

TEST(FastScanCheck, DoesNotAcceptARefusal) {
  EXPECT_FALSE(is_accepted([](const DecodeOptions&, std::optional<Image>& image) { image.reset(); }));
}

// Columns of MCUs that are left out by mistake are to show, whichever they are.
TEST(FastScanCheck, HasPartsWithSeveralColumnsOfMcusInThemAndBesideThem) {
  constexpr int kMcu = 16;
  int parts = 0;
  EXPECT_TRUE(is_accepted([&](const DecodeOptions& options, std::optional<Image>&) {
    if (!options.crop || options.scale_denominator != 1) return;
    EXPECT_GE(options.crop->x, 2 * kMcu);
    EXPECT_GE(options.crop->y, 2 * kMcu);
    EXPECT_NE(options.crop->x / kMcu, (options.crop->x + options.crop->width - 1) / kMcu);
    ++parts;
  }));
  EXPECT_GE(parts, 3);
}

}  // namespace

}  // namespace libtrain::data::detail
