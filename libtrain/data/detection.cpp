#include <libtrain/data/detection.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/aspect_ratio_groups.hpp>
#include <libtrain/data/copy_paste.hpp>
#include <libtrain/data/formats/detail/polygon_mask.hpp>
#include <libtrain/data/formats/run_length.hpp>
#include <libtrain/data/sources/named_images.hpp>
#include <libtrain/data/stage_clock.hpp>
#include <libtrain/data/storage/content_hash.hpp>

namespace libtrain::data {

namespace {

// In pixels. Objects with a smaller side after cropping are left out.
constexpr double kSmallestSide = 1;

// The images to read, in the order of the annotations.
std::vector<std::uint32_t> chosen_images(const CocoAnnotations& annotations, CocoUse use) {
  std::vector<std::uint32_t> images;
  for (std::size_t image = 0; image < annotations.images.size(); ++image) {
    if (use == CocoUse::evaluation || annotations.objects.has_object(image)) {
      images.push_back(static_cast<std::uint32_t>(image));
    }
  }
  return images;
}

std::vector<std::string> names_of(const CocoAnnotations& annotations, const std::vector<std::uint32_t>& images) {
  std::vector<std::string> names;
  names.reserve(images.size());
  for (const std::uint32_t image : images) names.emplace_back(annotations.file_name(annotations.images[image]));
  return names;
}

// Sets pixels of a row-major mask from runs, which are column-major.
void paint(RunLengthView runs, std::uint8_t* mask) {
  std::uint64_t position = 0;
  bool is_one = false;
  for (const std::uint32_t count : runs.counts) {
    for (std::uint64_t pixel = position; is_one && pixel < position + count; ++pixel) {
      mask[pixel % runs.height * runs.width + pixel / runs.height] = 1;
    }
    position += count;
    is_one = !is_one;
  }
}

std::vector<double> finished_polygon(std::span<const double> polygon, const Geometry& geometry) {
  std::vector<double> finished(polygon.size());
  for (std::size_t k = 0; k + 1 < polygon.size(); k += 2) {
    const ImagePoint point = geometry.map_point(ImagePoint{polygon[k], polygon[k + 1]});
    finished[k] = point[0];
    finished[k + 1] = point[1];
  }
  return finished;
}

// For each pixel in a row or a column of the finished image, the nearest pixel of the file's image; -1 outside of it.
std::vector<std::int64_t> nearest_pixels(int count, double begin, double end, std::int64_t available, bool mirrored) {
  std::vector<std::int64_t> nearest(static_cast<std::size_t>(count));
  for (int pixel = 0; pixel < count; ++pixel) {
    const int place = mirrored ? count - 1 - pixel : pixel;
    const auto from = static_cast<std::int64_t>(std::floor(begin + (place + 0.5) * (end - begin) / count));
    nearest[static_cast<std::size_t>(pixel)] = from < 0 || from >= available ? -1 : from;
  }
  return nearest;
}

// Adds a category without objects for each id from 1 on that has none.
void fill_category_ids(CocoAnnotations& annotations, const std::string& file) {
  constexpr std::int64_t kLargestId = 65535;
  const auto listed = std::exchange(annotations.categories, {});
  for (const auto& category : listed) {
    if (category.id >= 1 && category.id <= kLargestId) continue;
    throw EnvironmentError(text("'", file, "' has the category ", category.id, ", '", category.name,
                                "'. Ids that are labels must be 1 to ", kLargestId, "."));
  }
  for (const auto& category : listed) {
    while (std::ssize(annotations.categories) < category.id) {
      const auto id = std::ssize(annotations.categories) + 1;
      annotations.categories.push_back({.id = id, .name = text("no category ", id)});
    }
    annotations.categories.back() = category;
  }
  for (auto& object : annotations.objects.annotations)
    object.category = static_cast<std::uint32_t>(listed[object.category].id - 1);
}

}  // namespace

DetectionBatch pad_detections(const std::vector<DetectionSample>& samples, std::int64_t multiple_of) {
  if (multiple_of < 1) throw UsageError(text("multiple_of is ", multiple_of, ". It must be at least 1."));
  std::int64_t height = 0;
  std::int64_t width = 0;
  for (const auto& sample : samples) {
    height = std::max(height, sample.image.size(1));
    width = std::max(width, sample.image.size(2));
  }
  const auto rounded_up = [&](std::int64_t size) { return (size + multiple_of - 1) / multiple_of * multiple_of; };
  const auto options = samples.empty() ? at::TensorOptions(at::kFloat) : samples.front().image.options();
  DetectionBatch batch{.images = at::empty({std::ssize(samples), 3, rounded_up(height), rounded_up(width)}, options),
                       .sizes = at::empty({std::ssize(samples), 2}, at::kLong)};
  auto* sizes = batch.sizes.mutable_data_ptr<std::int64_t>();
  for (std::size_t k = 0; k < samples.size(); ++k) {
    const at::Tensor& image = samples[k].image;
    const at::Tensor padded = batch.images[static_cast<std::int64_t>(k)];
    padded.slice(1, 0, image.size(1)).slice(2, 0, image.size(2)).copy_(image);
    padded.slice(1, 0, image.size(1)).slice(2, image.size(2)).zero_();
    padded.slice(1, image.size(1)).zero_();
    sizes[2 * k] = image.size(1);
    sizes[2 * k + 1] = image.size(2);
    batch.targets.push_back(samples[k].target);
  }
  return batch;
}

CocoDetection::CocoDetection(std::shared_ptr<const Storage> storage, const std::string& folder,
                             const std::string& annotations, const CocoDetectionOptions& options)
    : options_(options) {
  if (!storage) throw UsageError("CocoDetection was given no storage.");
  if (options.images.type != PixelType::float32 || options.images.layout != Layout::nchw ||
      options.images.channels != 3) {
    throw UsageError(
        "CocoDetection makes float32 images in NCHW with 3 channels. Leave the options type, layout and channels out.");
  }
  if (options.images.trivial_augment || options.images.rand_augment) {
    throw UsageError(
        "TrivialAugment and RandAugment move the content of an image, but not its boxes and masks. Leave them out for "
        "CocoDetection, or change colours with color_jitter.");
  }
  // Negated, so that NaN is refused.
  if (!(options.copy_paste >= 0 && options.copy_paste <= 1)) {
    throw UsageError(text("CocoDetectionOptions::copy_paste is ", options.copy_paste, ", expected 0 to 1."));
  }
  if (options.copy_paste > 0 && !options.masks) {
    throw UsageError("CocoDetectionOptions::copy_paste pastes objects by their masks. Set ::masks, too.");
  }
  const ImagePipeline checks_the_options(options.images);
  annotations_ = read_coco(*storage->open(annotations), {.use = options.use, .malformed = options.malformed});
  if (options.labels_are_ids) fill_category_ids(annotations_, text(storage->name(), "/", annotations));
  images_ = chosen_images(annotations_, options.use);
  if (images_.empty()) {
    throw EnvironmentError(text("'", storage->name(), "/", annotations, "' has no image with objects: ",
                                annotations_.images.size(), " images in all. Check that it is the instances file."));
  }
  source_ = open_named_images(std::move(storage), folder, names_of(annotations_, images_), options_.index_folder);
}

DetectionSample CocoDetection::get(std::uint64_t index, SampleRandom& random) const {
  DetectionSample sample = read(index, random);
  if (options_.copy_paste > 0 && random.uniform() < options_.copy_paste) {
    const int other = random.integer(0, static_cast<int>(images_.size() - 1));
    std::optional<DetectionSample> from;
    try {
      from = read(static_cast<std::uint64_t>(other), random);
    } catch (const StorageUnavailable&) {
      throw;
    } catch (const EnvironmentError&) {
      return sample;  // if it were thrown, it would count as an error of this sample
    }
    paste_objects(*from, random, sample);
  }
  return sample;
}

DetectionSample CocoDetection::read(std::uint64_t index, SampleRandom& random) const {
  // One per thread, so that its memory is reused.
  thread_local EncodedImage encoded;
  source_->read(index, encoded);
  const auto file = std::as_bytes(std::span(encoded.bytes));
  const std::string name = source_->origin(index).path;
  const StageScope transforming(LoaderStage::transform);

  const std::size_t image = images_[index];
  const CocoImage& annotated = annotations_.images[image];
  const ImageHeader header = read_image_header(file, name, options_.images.maximum_pixels);
  if (header.width != annotated.width || header.height != annotated.height) {
    const bool is_turned = header.width == annotated.height && header.height == annotated.width;
    throw EnvironmentError(text("image '", name, "' is ", header.width, " x ", header.height,
                                " pixels, but the annotations say ", annotated.width, " x ", annotated.height,
                                is_turned ? ". EXIF orientation is ignored: turn the pixels of the images first."
                                          : ". Use the images that were annotated."));
  }
  ImagePipeline pipeline(options_.images);
  const ImagePlan plan = pipeline.plan(header, random, name);
  DetectionSample sample{.image = at::empty({3, plan.geometry.height, plan.geometry.width}, at::kFloat),
                         .target = target_of(image, plan.geometry)};
  pipeline.render(plan, file, name, random,
                  {static_cast<std::byte*>(sample.image.mutable_data_ptr()), pipeline.bytes(plan)});
  return sample;
}

DetectionTarget CocoDetection::target_of(std::size_t image, const Geometry& geometry) const {
  std::vector<const CocoAnnotation*> kept;
  std::vector<ImageBox> boxes;
  for (const CocoAnnotation& each : annotations_.objects.of_image(image)) {
    const BoundingBox& box = each.box;
    const ImageBox finished =
        geometry.clipped(geometry.map_box(ImageBox{box.x, box.y, box.x + box.width, box.y + box.height}));
    // Without a crop, objects of any size stay.
    const bool is_whole = options_.images.shorter_side.has_value();
    if (!is_whole && std::min(finished[2] - finished[0], finished[3] - finished[1]) < kSmallestSide) continue;
    kept.push_back(&each);
    boxes.push_back(finished);
  }
  const auto count = std::ssize(kept);
  DetectionTarget target{.boxes = at::empty({count, 4}, at::kFloat),
                         .labels = at::empty({count}, at::kLong),
                         .crowd = at::empty({count}, at::kBool),
                         .area = at::empty({count}, at::kFloat),
                         .image_id = annotations_.images[image].id};
  auto* coordinates = target.boxes.mutable_data_ptr<float>();
  auto* labels = target.labels.mutable_data_ptr<std::int64_t>();
  auto* crowd = target.crowd.mutable_data_ptr<bool>();
  auto* area = target.area.mutable_data_ptr<float>();
  if (options_.masks) target.masks = at::zeros({count, geometry.height, geometry.width}, at::kByte);
  for (std::size_t k = 0; k < kept.size(); ++k) {
    for (const double coordinate : boxes[k]) *coordinates++ = static_cast<float>(coordinate);
    labels[k] = 1 + std::int64_t{kept[k]->category};
    crowd[k] = kept[k]->crowd;
    area[k] = static_cast<float>(kept[k]->area);
    if (!options_.masks) continue;
    const auto pixels = static_cast<std::size_t>(geometry.height) * static_cast<std::size_t>(geometry.width);
    paint_mask(*kept[k], annotations_.images[image], geometry,
               target.masks.mutable_data_ptr<std::uint8_t>() + k * pixels);
  }
  return target;
}

// Polygons are transformed and then drawn, without loss of precision; runs of pixels are resized by nearest neighbour.
void CocoDetection::paint_mask(const CocoAnnotation& annotation, const CocoImage& image, const Geometry& geometry,
                               std::uint8_t* mask) const {
  const CocoShapes& shapes = annotations_.objects.shapes;
  const auto height = static_cast<std::uint32_t>(geometry.height);
  const auto width = static_cast<std::uint32_t>(geometry.width);
  if (annotation.kind == CocoShape::polygons) {
    for (std::uint32_t k = 0; k < annotation.polygons; ++k) {
      paint(detail::polygon_mask(finished_polygon(shapes.polygon(annotation.shape + k), geometry), height, width),
            mask);
    }
  }
  if (annotation.kind != CocoShape::run_length) return;
  const RunLengthView runs = shapes.run_length(annotation.shape);
  if (runs.height != static_cast<std::uint32_t>(image.height) ||
      runs.width != static_cast<std::uint32_t>(image.width)) {
    throw EnvironmentError(text("the mask of annotation ", annotation.id, " is ", runs.width, " x ", runs.height,
                                " pixels, but its image is ", image.width, " x ", image.height,
                                ". Correct the annotation."));
  }
  std::vector<std::uint8_t> stored(std::size_t{runs.height} * runs.width);
  decode_mask(runs, stored);
  const auto columns = nearest_pixels(geometry.width, geometry.source[0], geometry.source[2], image.width,
                                      geometry.flip == Flip::horizontal);
  const auto rows = nearest_pixels(geometry.height, geometry.source[1], geometry.source[3], image.height, false);
  for (std::size_t y = 0; y < rows.size(); ++y) {
    for (std::size_t x = 0; x < columns.size(); ++x) {
      if (rows[y] < 0 || columns[x] < 0) continue;
      mask[y * width + x] = stored[static_cast<std::size_t>(columns[x] * runs.height + rows[y])];
    }
  }
}

std::vector<std::uint8_t> CocoDetection::aspect_ratio_groups(int factor) const {
  std::vector<ImageExtent> extents;
  extents.reserve(images_.size());
  for (const std::uint32_t image : images_) {
    extents.push_back({.width = annotations_.images[image].width, .height = annotations_.images[image].height});
  }
  return data::aspect_ratio_groups(extents, factor);
}

DatasetIdentity CocoDetection::identity() const {
  DatasetIdentity lines{text(size(), " pictures")};
  for (const auto& category : annotations_.categories)
    lines.push_back(text("category ", category.id, " ", category.name));
  ContentHasher hasher;
  const auto add = [&](const auto& values) { hasher.update(std::as_bytes(std::span(values))); };
  for (std::size_t k = 0; k < images_.size(); ++k) {
    const CocoImage& image = annotations_.images[images_[k]];
    hasher.update(text(image.id, " ", image.width, " ", image.height, " ", annotations_.file_name(image), "\n"));
    for (const CocoAnnotation& each : annotations_.objects.of_image(images_[k])) {
      add(std::array{each.box.x, each.box.y, each.box.width, each.box.height, each.area});
      hasher.update(text(each.category, " ", each.crowd, " ", each.shape, " ", each.polygons, "\n"));
    }
  }
  add(annotations_.objects.shapes.coordinates);
  add(annotations_.objects.shapes.counts);
  lines.push_back(text("annotations with checksum ", to_string(hasher.digest())));
  return lines;
}

}  // namespace libtrain::data
