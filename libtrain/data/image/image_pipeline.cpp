#include <libtrain/data/image/image_pipeline.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/decode_plan.hpp>
#include <libtrain/data/image/image_header.hpp>
#include <libtrain/data/image/image_view.hpp>
#include <libtrain/data/image/trivial_augment.hpp>
#include <libtrain/data/stage_clock.hpp>

namespace libtrain::data {

namespace {

constexpr int kLongestSide = 65535;

// One large picture should not take its memory from every worker for the rest of the run.
constexpr std::size_t kKeptBytes = std::size_t{16} << 20;

// All that is drawn for a picture, but for the noise that erases.
struct Draws {
  Crop crop = {};
  Flip flip = Flip::none;
  std::optional<ColorJitter> jitter = std::nullopt;
  std::optional<TrivialAugment> augment = std::nullopt;
  std::optional<Crop> erased = std::nullopt;
};

// For a file of that size.
Draws draw(const ImagePipelineOptions& options, int width, int height, SampleRandom& random) {
  Draws draws;
  if (options.random_resized_crop) {
    draws.crop = random_resized_crop(width, height, *options.random_resized_crop, random);
  }
  if (options.flip_probability > 0 && random.uniform() < options.flip_probability) draws.flip = Flip::horizontal;
  if (options.color_jitter) draws.jitter = draw_color_jitter(*options.color_jitter, random);
  if (options.trivial_augment) draws.augment = draw_trivial_augment(random);
  if (options.random_erasing) {
    draws.erased = draw_random_erasing(options.width, options.height, *options.random_erasing, random);
  }
  return draws;
}

bool augments(const ImagePipelineOptions& options) {
  return options.color_jitter.has_value() || options.trivial_augment;
}

void require_pipeline_options(const ImagePipelineOptions& options) {
  const int width = options.width;
  const int height = options.height;
  if (width < 1 || height < 1 || width > kLongestSide || height > kLongestSide) {
    throw UsageError(text("ImagePipelineOptions asks for pictures of ", width, " x ", height,
                          " pixels, expected sides from 1 to ", kLongestSide, "."));
  }
  if (options.channels != 1 && options.channels != 3) {
    throw UsageError(text("ImagePipelineOptions::channels is ", options.channels, ", expected 1 (grey) or 3 (RGB)."));
  }
  if (!options.random_resized_crop && options.short_side < std::max(width, height)) {
    throw UsageError(text("ImagePipelineOptions::short_side is ", options.short_side, " for pictures of ", width, " x ",
                          height, ", expected at least ", std::max(width, height),
                          ": what is cut out must fit every resized picture."));
  }
  // Negated, so that NaN is refused.
  if (!(options.flip_probability >= 0 && options.flip_probability <= 1)) {
    throw UsageError(
        text("ImagePipelineOptions::flip_probability is ", options.flip_probability, ", expected 0 to 1."));
  }
  if (options.random_erasing && options.type == PixelType::uint8) {
    throw UsageError(
        "ImagePipelineOptions::random_erasing writes normalised values, and ::type is uint8: take a float type, or "
        "leave it out.");
  }
}

// What the steps would refuse at the first picture.
void try_steps(const ImagePipelineOptions& options) {
  SampleRandom random(0, 0, 0);
  draw(options, 1, 1, random);
  const std::array<std::uint8_t, 3> pixel{};
  std::array<float, 3> finished{};
  Resizer().resize({.pixels = pixel.data(), .width = 1, .height = 1, .channels = options.channels, .row_stride = 3},
                   {.normalization = options.normalization},
                   {.pixels = finished.data(),
                    .width = 1,
                    .height = 1,
                    .channels = options.channels,
                    .type = options.type,
                    .layout = options.layout});
}

ResizedCrop center_crop(const ImagePipelineOptions& options, const ImageHeader& header, const std::string& name) {
  try {
    return resized_center_crop(header.width, header.height, options.short_side, options.width, options.height);
  } catch (const UsageError& error) {
    // The options are in order: it is the picture that is not.
    throw EnvironmentError(text("image '", name, "': ", error.what()));
  }
}

detail::DecodePlan plan_for(const ImagePipelineOptions& options, const ImageHeader& header, const Crop& drawn,
                            const std::string& name) {
  const bool scaling = options.scaled_decoding && header.format == ImageFormat::jpeg;
  if (options.random_resized_crop) {
    const int scale = scaling ? detail::choose_scale(drawn.width, drawn.height, options.width, options.height) : 1;
    return detail::plan_crop(drawn, scale);
  }
  const ResizedCrop resized = center_crop(options, header, name);
  const int scale = scaling ? detail::choose_scale(header.width, header.height, resized.width, resized.height) : 1;
  return detail::plan_resized_crop(header.width, header.height, resized, scale);
}

}  // namespace

ImagePipelineOptions training_images(int side) {
  return {.width = side, .height = side, .random_resized_crop = RandomResizedCropOptions{}, .flip_probability = 0.5};
}

ImagePipelineOptions evaluation_images(int side, int short_side) {
  return {.width = side, .height = side, .short_side = short_side};
}

ImagePipeline::ImagePipeline(const ImagePipelineOptions& options) : options_(options) {
  require_pipeline_options(options);
  try_steps(options);
  if (!augments(options)) return;
  augmented_ = {.width = options.width, .height = options.height, .channels = options.channels};
  augmented_.pixels.resize(augmented_.row_bytes() * static_cast<std::size_t>(options.height));
}

std::size_t ImagePipeline::bytes() const {
  return static_cast<std::size_t>(options_.width) * static_cast<std::size_t>(options_.height) *
         static_cast<std::size_t>(options_.channels) * element_bytes(options_.type);
}

void ImagePipeline::run(std::span<const std::byte> file, const std::string& name, SampleRandom& random,
                        std::span<std::byte> to) {
  if (to.size() != bytes()) {
    throw UsageError(
        text("The memory for the finished picture of '", name, "' has ", to.size(), " bytes, expected ", bytes(), "."));
  }
  const StageScope scope(LoaderStage::transform);
  const ImageHeader header = read_image_header(file, name, options_.maximum_pixels);
  const Draws draws = draw(options_, header.width, header.height, random);
  detail::DecodePlan plan = plan_for(options_, header, draws.crop, name);
  decode(file, {.name = name,
                .channels = options_.channels,
                .scale_denominator = plan.scale_denominator,
                .crop = plan.crop,
                .maximum_pixels = options_.maximum_pixels});

  const PixelTarget target{.pixels = to.data(),
                           .width = options_.width,
                           .height = options_.height,
                           .channels = options_.channels,
                           .type = options_.type,
                           .layout = options_.layout};
  plan.resize.flip = draws.flip;
  plan.resize.normalization = options_.normalization;
  if (augments(options_)) {
    resizer_.resize(view(decoded_), plan.resize, target_of(augmented_));
    if (draws.jitter) apply_color_jitter(*draws.jitter, augmented_);
    if (draws.augment) apply_trivial_augment(*draws.augment, augmented_);
    // To the size that it has: the very same pixels.
    resizer_.resize(view(augmented_), {.normalization = options_.normalization}, target);
  } else {
    resizer_.resize(view(decoded_), plan.resize, target);
  }
  if (draws.erased) erase(target, *draws.erased, *options_.random_erasing, random);
}

// To decoded_.
void ImagePipeline::decode(std::span<const std::byte> file, const DecodeOptions& options) {
  const StageScope scope(LoaderStage::decode);
  const Crop crop = options.crop.value();
  decoded_.width = crop.width;
  decoded_.height = crop.height;
  decoded_.channels = options.channels;
  std::vector<std::uint8_t>& pixels = decoded_.pixels;
  const std::size_t size = decoded_.row_bytes() * static_cast<std::size_t>(crop.height);
  // Made anew rather than grown, which would copy the picture before.
  if (pixels.capacity() < size || pixels.capacity() > kKeptBytes) pixels = std::vector<std::uint8_t>();
  if (size > kKeptBytes) {
    // Allocates nothing before the file has turned out to be long enough for so many pixels.
    decoded_ = decoder_.decode(file, options);
  } else {
    pixels.resize(size);
    decoder_.decode_into(file, options, detail::rows_of(decoded_));
  }
}

}  // namespace libtrain::data
