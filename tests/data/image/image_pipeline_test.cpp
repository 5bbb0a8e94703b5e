#include <libtrain/data/image/image_pipeline.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/image/detail/jpeg.hpp>
#include <libtrain/data/image/encode_png.hpp>
#include <libtrain/data/image/image.hpp>
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

void darken_somewhere(Image& picture, SampleRandom& random) {
  picture.pixels[static_cast<std::size_t>(random.integer(0, 99))] = 0;
  for (auto& byte : picture.pixels) byte = static_cast<std::uint8_t>(byte / 2);
}

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
  add("RandAugment", training, [](Options& options) { options.rand_augment = RandAugmentOptions{.operations = 3}; });
  add("a step of one's own", training, [](Options& options) { options.uint8_step = darken_somewhere; });
  add("padded", training, [](Options& options) {
    options.random_resized_crop = {};
    options.random_crop = RandomCropOptions{.padding = 40, .fill = {10, 20, 30}};
  });
  add("padded, all steps", training, [](Options& options) {
    options.random_resized_crop = {};
    options.random_crop = RandomCropOptions{.padding = 60};
    options.color_jitter = ColorJitterOptions{.brightness = 0.4};
    options.rand_augment = RandAugmentOptions{};
    options.uint8_step = darken_somewhere;
    options.random_erasing = RandomErasingOptions{.value = ErasingValue::normal};
  });
  add("shorter side", evaluation, [](Options& options) {
    options.shorter_side = ShorterSide{.min_size = 50, .max_size = 90};
    options.flip_probability = 0.5;
  });
  add("scale jitter", training, [](Options& options) {
    options.random_resized_crop = {};
    options.scale_jitter = ScaleJitter{.width = 90, .height = 70, .scale = {0.3, 2}};
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

// With pixels of that colour on all sides.
Image padded(const Image& image, const RandomCropOptions& options) {
  Image result =
      constant_picture(image.width + 2 * options.padding, image.height + 2 * options.padding, image.channels, 0);
  for (int y = 0; y < result.height; ++y) {
    for (int x = 0; x < result.width * result.channels; ++x) {
      result.row(y)[x] = options.fill[static_cast<std::size_t>(x % result.channels)];
    }
  }
  for (int y = 0; y < image.height; ++y) {
    std::copy_n(image.row(y), image.row_bytes(), result.row(y + options.padding) + options.padding * image.channels);
  }
  return result;
}

Image resized_to(const Image& image, int width, int height) {
  Image result = constant_picture(width, height, image.channels, 0);
  Resizer().resize(view(image), {}, target_of(result));
  return result;
}

Image cropped_and_resized(const Image& whole, const ImagePipelineOptions& options, SampleRandom& random) {
  if (options.random_resized_crop) {
    const Crop crop = random_resized_crop(whole.width, whole.height, *options.random_resized_crop, random);
    return resized_to(cropped(whole, crop), options.width, options.height);
  }
  if (options.random_crop) {
    Crop crop = random_crop(whole.width, whole.height, *options.random_crop, options.width, options.height, random);
    crop.x += options.random_crop->padding;
    crop.y += options.random_crop->padding;
    return cropped(padded(whole, *options.random_crop), crop);
  }
  if (options.shorter_side) {
    const ResizedCrop size = resized_whole(whole.width, whole.height, *options.shorter_side);
    return resized_to(whole, size.width, size.height);
  }
  const ResizedCrop resized =
      options.scale_jitter
          ? random_scaled_crop(whole.width, whole.height, *options.scale_jitter, random)
          : resized_center_crop(whole.width, whole.height, options.short_side, options.width, options.height);
  return cropped(resized_to(whole, resized.width, resized.height), resized.crop);
}

// One step after the other, each on the whole image.
File naive(const Image& whole, const ImagePipelineOptions& options, SampleRandom& random) {
  Image picture = cropped_and_resized(whole, options, random);
  if (options.flip_probability > 0 && random.uniform() < options.flip_probability) picture = mirrored(picture);
  if (options.color_jitter) apply_color_jitter(draw_color_jitter(*options.color_jitter, random), picture);
  if (options.trivial_augment) apply_augment(draw_trivial_augment(random), picture);
  if (options.rand_augment) {
    for (const auto& step : draw_rand_augment(*options.rand_augment, picture.width, picture.height, random)) {
      apply_augment(step, picture);
    }
  }
  std::optional<Crop> erased;
  if (options.random_erasing) {
    erased = draw_random_erasing(picture.width, picture.height, *options.random_erasing, random);
  }
  if (options.uint8_step) options.uint8_step(picture, random);
  File finished(picture.pixels.size() * element_bytes(options.type));
  const PixelTarget target{.pixels = finished.data(),
                           .width = picture.width,
                           .height = picture.height,
                           .channels = options.channels,
                           .type = options.type,
                           .layout = options.layout};
  Resizer().resize(view(picture), {.normalization = options.normalization}, target);
  if (erased) erase(target, *erased, *options.random_erasing, random);
  return finished;
}

File run(ImagePipeline& pipeline, const File& file, SampleRandom& random) {
  const auto header = read_image_header(file, "cat.jpg", pipeline.options().maximum_pixels);
  SampleRandom same = random;
  File picture(pipeline.bytes(pipeline.plan(header, same, "cat.jpg")));
  pipeline.run(file, "cat.jpg", random, picture);
  return picture;
}

File run(const ImagePipelineOptions& options, const File& file, std::uint64_t seed = 0) {
  ImagePipeline pipeline(options);
  SampleRandom random(seed, 0, 0);
  return run(pipeline, file, random);
}

// Compares the images, and the state of the random numbers after them.
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

// More bytes than it keeps memory for, between two smaller images.
TEST(ImagePipeline, TakesVeryLargePictures) {
  constexpr int kSide = 4100;
  Image rows = constant_picture(kSide, kSide, 1, 0);
  for (int y = 0; y < kSide; ++y) std::fill_n(rows.row(y), kSide, static_cast<std::uint8_t>(y / 20));
  const File large = detail::encode_jpeg(rows);
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
  EXPECT_THAT(message({.random_resized_crop = RandomResizedCropOptions{}, .random_crop = RandomCropOptions{}}),
              HasSubstr("more than one of"));
  EXPECT_THAT(message({.random_crop = RandomCropOptions{.padding = -1}}), HasSubstr("padding is -1"));
  EXPECT_THAT(message({.shorter_side = ShorterSide{.min_size = 0}}), HasSubstr("min_size of 0"));
  EXPECT_THAT(message({.trivial_augment = true, .rand_augment = RandAugmentOptions{}}), HasSubstr("rand_augment"));
  EXPECT_THAT(message({.rand_augment = RandAugmentOptions{.magnitude = 31}}), HasSubstr("magnitude 31"));
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

// A step of 16 pixels in x and in y of 4 colours, of which the crop shows a part: the boundaries must be where the
// geometry puts them.
TEST(ImagePipeline, TheGeometrySaysWhereThingsAre) {
  Image image = constant_picture(160, 120, 1, 0);
  const ImageBox object{40, 30, 120, 90};
  for (int y = 30; y < 90; ++y) std::fill_n(image.row(y) + 40, 80, std::uint8_t{255});
  const File file = encode_png(image);
  ImagePipelineOptions options{.width = 64, .height = 48, .channels = 1, .type = PixelType::uint8};
  std::vector<ImagePipelineOptions> ways(4, options);
  ways[0].short_side = 96;
  ways[1].random_resized_crop = RandomResizedCropOptions{.scale = {0.3, 0.6}};
  ways[2].random_crop = RandomCropOptions{.padding = 30};
  ways[3].shorter_side = ShorterSide{.min_size = 90, .max_size = 130};
  for (std::size_t way = 0; way < ways.size(); ++way) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      ways[way].flip_probability = 0.5;
      ImagePipeline pipeline(ways[way]);
      SampleRandom random(seed, 0, 0);
      const ImagePlan plan = pipeline.plan(read_image_header(file, "cat.png"), random);
      std::vector<std::uint8_t> pixels(pipeline.bytes(plan));
      pipeline.render(plan, file, "cat.png", random, std::as_writable_bytes(std::span(pixels)));
      const ImageBox box = plan.geometry.clipped(plan.geometry.map_box(object));
      // The white fraction of the image is the object's area in it, except for a blurred pixel along the boundary.
      double white = 0;
      for (const auto value : pixels) white += value / 255.0;
      const double area = (box[2] - box[0]) * (box[3] - box[1]);
      EXPECT_NEAR(white, area, 0.01 * static_cast<double>(pixels.size())) << way << ", seed " << seed;
      const auto at = [&](double x, double y) {
        return pixels[static_cast<std::size_t>(y) * static_cast<std::size_t>(plan.geometry.width) +
                      static_cast<std::size_t>(x)];
      };
      if (area <= 16) continue;
      EXPECT_EQ(at((box[0] + box[2]) / 2, (box[1] + box[3]) / 2), 255) << way << ", seed " << seed;
    }
  }
}

TEST(ImagePipeline, PlansPicturesOfTheirOwnSize) {
  ImagePipelineOptions options{.width = 0, .height = 0, .shorter_side = ShorterSide{}, .type = PixelType::uint8};
  const ImagePipeline pipeline(options);
  SampleRandom random(0, 0, 0);
  const File file = write_jpeg({.width = 64, .height = 48});
  const ImagePlan plan = pipeline.plan(read_image_header(file, "cat.jpg"), random);
  EXPECT_EQ(plan.geometry.width, 1066);
  EXPECT_EQ(plan.geometry.height, 800);
  EXPECT_EQ(pipeline.bytes(plan), std::size_t{1066} * 800 * 3);
  EXPECT_THAT(message_of<UsageError>([&] { static_cast<void>(pipeline.bytes()); }), HasSubstr("shorter_side"));
}

TEST(ImagePipeline, RefusesPicturesThatTheRandomCropDoesNotFit) {
  const ImagePipelineOptions options{.width = 40, .height = 32, .random_crop = RandomCropOptions{.padding = 4}};
  EXPECT_THAT(message_of<EnvironmentError>([&] { run(options, write_jpeg({.width = 31, .height = 64})); }),
              AllOf(HasSubstr("image 'cat.jpg'"), HasSubstr("31 x 64 pixels padded by 4")));
}

TEST(ImagePipeline, RefusesAStepThatChangesTheSize) {
  ImagePipelineOptions options = evaluation_images(32, 40);
  options.uint8_step = [](Image& picture, SampleRandom&) { picture = constant_picture(30, 32, 3, 0); };
  EXPECT_THAT(message_of<UsageError>([&] { run(options, write_jpeg({})); }), HasSubstr("30 x 32 pixels"));
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
