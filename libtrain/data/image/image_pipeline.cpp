#include <libtrain/data/image/image_pipeline.hpp>

#include <algorithm>
#include <array>
#include <cstdint>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/image.hpp>
#include <libtrain/data/stage_clock.hpp>

namespace libtrain::data {

namespace {

// The memory of a larger image is not kept in every worker for the rest of the run.
constexpr std::size_t kKeptBytes = std::size_t{16} << 20;

void require_pipeline_options(const ImagePipelineOptions& options) {
  const int width = options.width;
  const int height = options.height;
  const bool sides_fit = width >= 1 && height >= 1 && width <= kLongestSide && height <= kLongestSide;
  if (!has_own_sizes(options) && !sides_fit) {
    throw UsageError(text("ImagePipelineOptions has a size of ", width, " x ", height,
                          " pixels, expected sides from 1 to ", kLongestSide, "."));
  }
  if (options.channels != 1 && options.channels != 3) {
    throw UsageError(text("ImagePipelineOptions::channels is ", options.channels, ", expected 1 (grey) or 3 (RGB)."));
  }
  const int crops = int{options.random_resized_crop.has_value()} + int{options.random_crop.has_value()} +
                    int{options.shorter_side.has_value()} + int{options.scale_jitter.has_value()};
  if (crops > 1) {
    throw UsageError(
        "ImagePipelineOptions has more than one of ::random_resized_crop, ::random_crop, ::shorter_side and "
        "::scale_jitter. Set at most one of them.");
  }
  if (crops == 0 && options.short_side < std::max(width, height)) {
    throw UsageError(text("ImagePipelineOptions::short_side is ", options.short_side, " for images of ", width, " x ",
                          height, ", expected at least ", std::max(width, height),
                          ", so that the crop fits every resized image."));
  }
  if (options.trivial_augment && options.rand_augment) {
    throw UsageError("ImagePipelineOptions has both ::trivial_augment and ::rand_augment. Leave one of them out.");
  }
  // Negated, so that NaN is refused.
  if (!(options.flip_probability >= 0 && options.flip_probability <= 1)) {
    throw UsageError(
        text("ImagePipelineOptions::flip_probability is ", options.flip_probability, ", expected 0 to 1."));
  }
  if (options.random_erasing && options.type == PixelType::uint8) {
    throw UsageError(
        "ImagePipelineOptions::random_erasing writes normalised values, but ::type is uint8. Use a float type, or "
        "leave random_erasing out.");
  }
}

// The part of the rectangle that is inside an image of that size; without area if no part is.
Crop intersection(const Crop& crop, int width, int height) {
  const int left = std::clamp(crop.x, 0, width);
  const int top = std::clamp(crop.y, 0, height);
  return {left, top, std::clamp(crop.x + crop.width, 0, width) - left,
          std::clamp(crop.y + crop.height, 0, height) - top};
}

// Sets the plan's geometry, decode and filled.
void choose_crop(const ImagePipelineOptions& options, const ImageHeader& header, SampleRandom& random,
                 ImagePlan& plan) {
  const int width = header.width;
  const int height = header.height;
  const bool scaling = options.scaled_decoding && header.format == ImageFormat::jpeg;
  Geometry& geometry = plan.geometry;
  geometry.width = options.width;
  geometry.height = options.height;
  if (options.random_resized_crop || options.random_crop) {
    const Crop crop = options.random_crop
                          ? random_crop(width, height, *options.random_crop, options.width, options.height, random)
                          : random_resized_crop(width, height, *options.random_resized_crop, random);
    const auto right = static_cast<double>(crop.x) + crop.width;
    const auto bottom = static_cast<double>(crop.y) + crop.height;
    geometry.source = {static_cast<double>(crop.x), static_cast<double>(crop.y), right, bottom};
    const Crop inside = intersection(crop, width, height);
    const int scale = scaling ? detail::choose_scale(crop.width, crop.height, options.width, options.height) : 1;
    plan.decode = detail::plan_crop(inside, scale);
    plan.filled = {.width = options.width, .height = options.height};
    if (inside != crop) plan.filled = {inside.x - crop.x, inside.y - crop.y, inside.width, inside.height};
    return;
  }
  const ResizedCrop resized =
      options.shorter_side   ? resized_whole(width, height, *options.shorter_side)
      : options.scale_jitter ? random_scaled_crop(width, height, *options.scale_jitter, random)
                             : resized_center_crop(width, height, options.short_side, options.width, options.height);
  const Crop& crop = resized.crop;
  const double x_scale = static_cast<double>(width) / resized.width;
  const double y_scale = static_cast<double>(height) / resized.height;
  geometry = {
      .source = {crop.x * x_scale, crop.y * y_scale, (crop.x + crop.width) * x_scale, (crop.y + crop.height) * y_scale},
      .width = crop.width,
      .height = crop.height};
  const int scale = scaling ? detail::choose_scale(width, height, resized.width, resized.height) : 1;
  plan.decode = detail::plan_resized_crop(width, height, resized, scale);
  plan.filled = {.width = crop.width, .height = crop.height};
}

ImagePlan draw(const ImagePipelineOptions& options, const ImageHeader& header, SampleRandom& random) {
  ImagePlan plan{.header = header};
  choose_crop(options, header, random, plan);
  const int width = plan.geometry.width;
  const int height = plan.geometry.height;
  if (options.flip_probability > 0 && random.uniform() < options.flip_probability) {
    plan.geometry.flip = Flip::horizontal;
  }
  if (options.color_jitter) plan.color_jitter = draw_color_jitter(*options.color_jitter, random);
  if (options.trivial_augment) plan.augment.push_back(draw_trivial_augment(random));
  if (options.rand_augment) plan.augment = draw_rand_augment(*options.rand_augment, width, height, random);
  if (options.random_erasing) plan.erased = draw_random_erasing(width, height, *options.random_erasing, random);
  return plan;
}

// Throws now what the steps would throw at the first image.
void try_steps(const ImagePipelineOptions& options) {
  SampleRandom random(0, 0, 0);
  const int side = has_own_sizes(options) ? 1 : std::max(options.width, options.height);
  draw(options, {.width = side, .height = side}, random);
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

// The part of the image that the file fills; fills the rest, which is padding.
PixelTarget filled_part(Image& image, const ImagePlan& plan, const FillColor& fill) {
  PixelTarget part = target_of(image);
  if (plan.filled == Crop{.width = image.width, .height = image.height}) return part;
  for (std::size_t i = 0; i < image.pixels.size(); ++i) {
    image.pixels[i] = fill[i % static_cast<std::size_t>(image.channels)];
  }
  const Crop& filled = plan.filled;
  const bool flipped = plan.geometry.flip == Flip::horizontal;
  part.row_stride = part.elements_per_row();
  part.pixels = part.at(0, filled.y, flipped ? image.width - filled.x - filled.width : filled.x);
  part.width = filled.width;
  part.height = filled.height;
  return part;
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
}

std::size_t ImagePipeline::bytes() const {
  if (has_own_sizes(options_)) {
    throw UsageError(
        "ImagePipelineOptions::shorter_side and ::scale_jitter give each image its own size. Call bytes(plan), or "
        "leave "
        "the option out if all images must have one size.");
  }
  return bytes({.geometry = {.width = options_.width, .height = options_.height}});
}

std::size_t ImagePipeline::bytes(const ImagePlan& plan) const {
  return static_cast<std::size_t>(plan.geometry.width) * static_cast<std::size_t>(plan.geometry.height) *
         static_cast<std::size_t>(options_.channels) * element_bytes(options_.type);
}

ImagePlan ImagePipeline::plan(const ImageHeader& header, SampleRandom& random, const std::string& name) const {
  try {
    return draw(options_, header, random);
  } catch (const UsageError& error) {
    // The options are valid: the fault is the image's.
    throw EnvironmentError(text("image '", name, "': ", error.what()));
  }
}

void ImagePipeline::run(std::span<const std::byte> file, const std::string& name, SampleRandom& random,
                        std::span<std::byte> to) {
  const StageScope scope(LoaderStage::transform);
  render(plan(read_image_header(file, name, options_.maximum_pixels), random, name), file, name, random, to);
}

void ImagePipeline::render(const ImagePlan& plan, std::span<const std::byte> file, const std::string& name,
                           SampleRandom& random, std::span<std::byte> to) {
  if (to.size() != bytes(plan)) {
    throw UsageError(text("The memory for the finished image of '", name, "' has ", to.size(), " bytes, expected ",
                          bytes(plan), "."));
  }
  const StageScope scope(LoaderStage::transform);
  decode(plan, file, name);
  const PixelTarget target{.pixels = to.data(),
                           .width = plan.geometry.width,
                           .height = plan.geometry.height,
                           .channels = options_.channels,
                           .type = options_.type,
                           .layout = options_.layout};
  const bool padded = plan.filled != Crop{.width = target.width, .height = target.height};
  if (padded || plan.color_jitter || !plan.augment.empty() || options_.uint8_step) {
    augment(plan, random);
    // Normalises only: at its own size the pixels stay the same.
    resizer_.resize(view(augmented_), {.normalization = options_.normalization}, target);
  } else {
    ResizeOptions resize = plan.decode.resize;
    resize.flip = plan.geometry.flip;
    resize.normalization = options_.normalization;
    resizer_.resize(view(decoded_), resize, target);
  }
  if (plan.erased) erase(target, *plan.erased, *options_.random_erasing, random);
}

// Decodes to decoded_, unless the image is all padding.
void ImagePipeline::decode(const ImagePlan& plan, std::span<const std::byte> file, const std::string& name) {
  if (plan.filled.width == 0 || plan.filled.height == 0) return;
  const StageScope scope(LoaderStage::decode);
  if (decoded_.pixels.capacity() > kKeptBytes) decoded_.pixels = {};
  decoder_.decode(file, plan.header,
                  {.name = name,
                   .channels = options_.channels,
                   .scale_denominator = plan.decode.scale_denominator,
                   .crop = plan.decode.crop,
                   .maximum_pixels = options_.maximum_pixels},
                  decoded_);
}

// From decoded_ to augmented_.
void ImagePipeline::augment(const ImagePlan& plan, SampleRandom& random) {
  const Geometry& geometry = plan.geometry;
  detail::shape(augmented_, geometry.width, geometry.height, options_.channels);
  const FillColor fill = options_.random_crop ? options_.random_crop->fill : FillColor{};
  const PixelTarget part = filled_part(augmented_, plan, fill);
  if (part.width > 0 && part.height > 0) {
    ResizeOptions resize = plan.decode.resize;
    resize.flip = geometry.flip;
    resizer_.resize(view(decoded_), resize, part);
  }
  if (plan.color_jitter) apply_color_jitter(*plan.color_jitter, augmented_);
  for (const AugmentStep& step : plan.augment) apply_augment(step, augmented_);
  if (!options_.uint8_step) return;
  options_.uint8_step(augmented_, random);
  if (augmented_.width == geometry.width && augmented_.height == geometry.height &&
      augmented_.channels == options_.channels) {
    return;
  }
  throw UsageError(text("ImagePipelineOptions::uint8_step returned an image of ", augmented_.width, " x ",
                        augmented_.height, " pixels and ", augmented_.channels, " channels, but it got one of ",
                        geometry.width, " x ", geometry.height, " and ", options_.channels,
                        ". It must not change size and channels."));
}

}  // namespace libtrain::data
