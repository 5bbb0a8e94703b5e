#include <libtrain/data/image/image_pipeline.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/image/image_view.hpp>
#include <libtrain/data/image/jpeg_encoder.hpp>
#include <libtrain/data/image/trivial_augment.hpp>
#include <libtrain/data/stage_clock.hpp>

#include <tests/data/image/jpeg_writer.hpp>
#include <tests/data/image/pictures.hpp>
#include <tests/data/image/png_writer.hpp>
#include <tests/support/message_of.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::all_png_recipes;
using libtrain::test::all_recipes;
using libtrain::test::cropped;
using libtrain::test::JpegColor;
using libtrain::test::JpegRecipe;
using libtrain::test::JpegScans;
using libtrain::test::message_of;
using libtrain::test::write_jpeg;
using libtrain::test::write_png;
using test::constant_picture;
using test::pixel;
using ::testing::AllOf;
using ::testing::HasSubstr;

using File = std::vector<std::byte>;

constexpr std::uint64_t kSeeds = 3;

struct Variant {
  std::string name;
  ImagePipelineOptions options;
};

// Every step, type, layout and number of channels.
std::vector<Variant> variants() {
  const ImagePipelineOptions evaluation{.width = 40, .height = 32, .short_side = 48};
  const ImagePipelineOptions training{
      .width = 40, .height = 32, .random_resized_crop = RandomResizedCropOptions{}, .flip_probability = 0.5};
  std::vector<Variant> result{{"evaluation", evaluation}, {"training", training}};
  const auto add = [&result](const std::string& name, ImagePipelineOptions options, const auto& change) {
    change(options);
    result.push_back({name, std::move(options)});
  };
  using Options = ImagePipelineOptions;
  add("enlarged", evaluation, [](Options& options) { options.short_side = 150; });
  add("uint8", evaluation, [](Options& options) { options.type = PixelType::uint8; });
  add("flipped", evaluation, [](Options& options) { options.flip_probability = 0.5; });
  add("float16, NHWC", training, [](Options& options) {
    options.type = PixelType::float16;
    options.layout = Layout::nhwc;
  });
  add("jitter", training, [](Options& options) {
    options.color_jitter = ColorJitterOptions{.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1};
  });
  add("TrivialAugment", training, [](Options& options) { options.trivial_augment = true; });
  add("TrivialAugment in the middle", evaluation, [](Options& options) { options.trivial_augment = true; });
  add("all steps, bfloat16", training, [](Options& options) {
    options.color_jitter = ColorJitterOptions{.brightness = 0.4, .hue = 0.2};
    options.trivial_augment = true;
    options.random_erasing = RandomErasingOptions{.value = ErasingValue::normal};
    options.type = PixelType::bfloat16;
    options.layout = Layout::nhwc;
  });
  add("erasing", training, [](Options& options) { options.random_erasing = RandomErasingOptions{.probability = 1}; });
  add("grey", evaluation, [](Options& options) { options.channels = 1; });
  add("grey, all steps", training, [](Options& options) {
    options.channels = 1;
    options.color_jitter = ColorJitterOptions{.contrast = 0.4, .saturation = 0.4};
    options.trivial_augment = true;
    options.random_erasing = RandomErasingOptions{};
  });
  return result;
}

Image mirrored(const Image& image) {
  Image result = image;
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      for (int channel = 0; channel < image.channels; ++channel) {
        result.row(y)[x * image.channels + channel] = pixel(image, image.width - 1 - x, y, channel);
      }
    }
  }
  return result;
}

Image cropped_and_resized(const Image& whole, const ImagePipelineOptions& options, SampleRandom& random) {
  if (options.random_resized_crop) {
    const Crop crop = random_resized_crop(whole.width, whole.height, *options.random_resized_crop, random);
    Image picture = constant_picture(options.width, options.height, options.channels, 0);
    Resizer().resize(view(cropped(whole, crop)), {}, target_of(picture));
    return picture;
  }
  const ResizedCrop resized =
      resized_center_crop(whole.width, whole.height, options.short_side, options.width, options.height);
  Image all = constant_picture(resized.width, resized.height, options.channels, 0);
  Resizer().resize(view(whole), {}, target_of(all));
  return cropped(all, resized.crop);
}

// One step after the other, each on all of the picture.
File naive(const Image& whole, const ImagePipelineOptions& options, SampleRandom& random) {
  Image picture = cropped_and_resized(whole, options, random);
  if (options.flip_probability > 0 && random.uniform() < options.flip_probability) picture = mirrored(picture);
  if (options.color_jitter) apply_color_jitter(draw_color_jitter(*options.color_jitter, random), picture);
  if (options.trivial_augment) apply_trivial_augment(draw_trivial_augment(random), picture);
  File finished(picture.pixels.size() * element_bytes(options.type));
  const PixelTarget target{.pixels = finished.data(),
                           .width = options.width,
                           .height = options.height,
                           .channels = options.channels,
                           .type = options.type,
                           .layout = options.layout};
  Resizer().resize(view(picture), {.normalization = options.normalization}, target);
  if (options.random_erasing) {
    const auto area = draw_random_erasing(options.width, options.height, *options.random_erasing, random);
    if (area) erase(target, *area, *options.random_erasing, random);
  }
  return finished;
}

File run(ImagePipeline& pipeline, const File& file, SampleRandom& random) {
  File picture(pipeline.bytes());
  pipeline.run(file, "cat.jpg", random, picture);
  return picture;
}

File run(const ImagePipelineOptions& options, const File& file, std::uint64_t seed = 0) {
  ImagePipeline pipeline(options);
  SampleRandom random(seed, 0, 0);
  return run(pipeline, file, random);
}

// Pictures are compared, and what the draws left behind.
void expect_naive(ImagePipeline& pipeline, const File& file, const std::string& what) {
  const Image whole = decode_image(file, {.channels = pipeline.options().channels});
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SampleRandom random(seed, 1, 2);
    SampleRandom same(seed, 1, 2);
    ASSERT_TRUE(run(pipeline, file, random) == naive(whole, pipeline.options(), same)) << what << ", seed " << seed;
    ASSERT_EQ(random.next(), same.next()) << what << ", seed " << seed;
  }
}

TEST(ImagePipeline, EqualsOneStepAfterTheOtherForJpegs) {
  std::vector<JpegRecipe> recipes = all_recipes();
  recipes.push_back({.name = "large 4:2:0", .width = 333, .height = 250, .luma = {2, 2}});
  recipes.push_back({.name = "segments 4:2:0", .width = 155, .height = 99, .luma = {2, 2}, .restart_interval = 2});
  recipes.push_back(
      {.name = "segments grey", .width = 90, .height = 70, .color = JpegColor::grey, .restart_interval = 4});
  std::vector<File> files;
  for (const auto& recipe : recipes) files.push_back(write_jpeg(recipe));
  for (const auto& variant : variants()) {
    ImagePipeline pipeline(variant.options);
    for (std::size_t i = 0; i < files.size(); ++i) {
      expect_naive(pipeline, files[i], variant.name + ", " + recipes[i].name);
    }
  }
}

TEST(ImagePipeline, EqualsOneStepAfterTheOtherForPngs) {
  auto recipes = all_png_recipes();
  recipes.push_back({.name = "large", .width = 150, .height = 120});
  std::vector<File> files;
  for (const auto& recipe : recipes) files.push_back(write_png(recipe).file);
  for (const auto& variant : variants()) {
    ImagePipeline pipeline(variant.options);
    for (std::size_t i = 0; i < files.size(); ++i) {
      expect_naive(pipeline, files[i], variant.name + ", " + recipes[i].name);
    }
  }
}

// More bytes than it keeps memory for, between two pictures of fewer.
TEST(ImagePipeline, TakesVeryLargePictures) {
  constexpr int kSide = 4100;
  Image rows = constant_picture(kSide, kSide, 1, 0);
  for (int y = 0; y < kSide; ++y) std::fill_n(rows.row(y), kSide, static_cast<std::uint8_t>(y / 20));
  const File large = encode_jpeg(rows);
  const File small = write_jpeg({.width = 120, .height = 90});
  const ImagePipelineOptions options{.width = 32, .height = 32, .channels = 1, .short_side = 32};
  ImagePipeline pipeline(options);
  expect_naive(pipeline, small, "small");
  expect_naive(pipeline, large, "large");
  expect_naive(pipeline, small, "small again");
}

TEST(ImagePipeline, GivesTheSamePictureForTheSameSeedWhateverCameBefore) {
  const File file = write_jpeg({.width = 120, .height = 90, .luma = {2, 2}});
  const File other = write_jpeg({.width = 200, .height = 30, .scans = JpegScans::progressive});
  ImagePipelineOptions options = training_images(32);
  options.trivial_augment = true;
  const File expected = run(options, file, 7);
  ImagePipeline pipeline(options);
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    SampleRandom random(seed, 0, 0);
    run(pipeline, other, random);
    SampleRandom same(7, 0, 0);
    EXPECT_TRUE(run(pipeline, file, same) == expected);
  }
  EXPECT_FALSE(run(options, file, 8) == expected);
}

TEST(ImagePipeline, FlipsAlwaysOrNever) {
  const File file = write_jpeg({.width = 120, .height = 90});
  ImagePipelineOptions options = training_images(24);
  options.type = PixelType::uint8;
  options.layout = Layout::nhwc;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    options.flip_probability = 0;
    Image straight = constant_picture(24, 24, 3, 0);
    const File bytes = run(options, file, seed);
    for (std::size_t i = 0; i < bytes.size(); ++i) straight.pixels[i] = std::to_integer<std::uint8_t>(bytes[i]);
    options.flip_probability = 1;
    const File flipped = run(options, file, seed);
    const Image expected = mirrored(straight);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      ASSERT_EQ(std::to_integer<std::uint8_t>(flipped[i]), expected.pixels[i]) << i;
    }
  }
}

// The middle eighth of the rows is wanted, and the last quarter of the file missing.
TEST(ImagePipeline, ReadsNoFurtherThanTheCropNeeds) {
  const File whole = write_jpeg({.width = 256, .height = 256, .luma = {2, 2}});
  const File part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(whole.size() * 3 / 4));
  const ImagePipelineOptions options = evaluation_images(32, 256);
  EXPECT_TRUE(run(options, part) == run(options, whole));
  EXPECT_THROW(decode_image(part), EnvironmentError);
}

TEST(ImagePipeline, ErrorsNameTheFile) {
  const File jpeg = write_jpeg({.width = 120, .height = 90});
  const File cut(jpeg.begin(), jpeg.begin() + static_cast<std::ptrdiff_t>(jpeg.size() / 3));
  const File png = write_png({.width = 1, .height = 20000}).file;
  const auto message = [](const ImagePipelineOptions& options, const File& file) {
    return message_of<EnvironmentError>([&] { run(options, file); });
  };
  EXPECT_THAT(message(evaluation_images(), cut), AllOf(HasSubstr("JPEG 'cat.jpg'"), HasSubstr("truncated")));
  EXPECT_THAT(message(evaluation_images(), File(30)), HasSubstr("image 'cat.jpg', byte offset 0"));
  EXPECT_THAT(message({.maximum_pixels = 120 * 90 - 1}, jpeg), HasSubstr("JPEG 'cat.jpg' has 120 x 90 pixels"));
  // 4e9 pixels high when it is 200000 wide.
  EXPECT_THAT(message({.short_side = 200000}, png), AllOf(HasSubstr("image 'cat.jpg'"), HasSubstr("4000000000")));
}

TEST(ImagePipeline, WorksOnAfterAnError) {
  const File jpeg = write_jpeg({.width = 120, .height = 90});
  const File cut(jpeg.begin(), jpeg.begin() + static_cast<std::ptrdiff_t>(jpeg.size() / 3));
  ImagePipeline pipeline(evaluation_images(32, 40));
  SampleRandom random(0, 0, 0);
  EXPECT_THROW(run(pipeline, cut, random), EnvironmentError);
  EXPECT_TRUE(run(pipeline, jpeg, random) == run(evaluation_images(32, 40), jpeg));
}

TEST(ImagePipeline, RefusesOptionsThatContradictEachOther) {
  const auto message = [](const ImagePipelineOptions& options) {
    return message_of<UsageError>([&] { ImagePipeline pipeline(options); });
  };
  EXPECT_THAT(message({.width = 0}), HasSubstr("0 x 224"));
  EXPECT_THAT(message({.height = 65536, .short_side = 70000}), HasSubstr("224 x 65536"));
  EXPECT_THAT(message({.channels = 2}), HasSubstr("::channels is 2"));
  EXPECT_THAT(message({.width = 300}), HasSubstr("::short_side is 256"));
  EXPECT_THAT(message({.flip_probability = 1.5}), HasSubstr("::flip_probability is 1.5"));
  EXPECT_THAT(message({.random_erasing = RandomErasingOptions{}, .type = PixelType::uint8}), HasSubstr("uint8"));
  EXPECT_THAT(message({.random_erasing = RandomErasingOptions{.probability = -1}}), HasSubstr("probability"));
  EXPECT_THAT(message({.random_resized_crop = RandomResizedCropOptions{.scale = {0.5, 2}}}), HasSubstr("area"));
  EXPECT_THAT(message({.color_jitter = ColorJitterOptions{.hue = 0.6}}), HasSubstr("hue"));
  EXPECT_THAT(message({.normalization = {.standard_deviation = {1, 0, 1}}}), HasSubstr("Channel 1"));
}

TEST(ImagePipeline, RefusesMemoryOfAnotherSize) {
  const ImagePipelineOptions options{
      .width = 5, .height = 4, .channels = 1, .short_side = 5, .type = PixelType::float16};
  ImagePipeline pipeline(options);
  EXPECT_EQ(pipeline.bytes(), 40u);
  SampleRandom random(0, 0, 0);
  File memory(39);
  const File file = write_jpeg({});
  EXPECT_THAT(message_of<UsageError>([&] { pipeline.run(file, "cat.jpg", random, memory); }),
              AllOf(HasSubstr("39 bytes"), HasSubstr("expected 40")));
}

TEST(ImagePipeline, ChargesItsTimeToDecodingAndTransforming) {
  StageClock clock;
  clock.resume();
  run(training_images(64), write_jpeg({.width = 300, .height = 200}));
  clock.pause();
  EXPECT_GT(clock.seconds()[static_cast<std::size_t>(LoaderStage::decode)], 0);
  EXPECT_GT(clock.seconds()[static_cast<std::size_t>(LoaderStage::transform)], 0);
}

}  // namespace
}  // namespace libtrain::data
