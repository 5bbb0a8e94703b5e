#include <libtrain/data/image_dataset.hpp>

#include <span>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

namespace {

at::ScalarType scalar_type(PixelType type) {
  switch (type) {
    case PixelType::uint8:
      return at::kByte;
    case PixelType::float16:
      return at::kHalf;
    case PixelType::bfloat16:
      return at::kBFloat16;
    case PixelType::float32:
      break;
  }
  return at::kFloat;
}

// The memory of a larger file is not kept for the rest of the run.
constexpr std::size_t kKeptBytes = std::size_t{16} << 20;

// A shard holds many images: the name contains the offset.
std::string name_of(const SampleOrigin& origin) {
  return origin.offset == 0 ? origin.path : text(origin.path, " at byte ", origin.offset);
}

}  // namespace

// The memory that a thread needs to make an image, reused from image to image.
struct ImageDataset::Workspace {
  explicit Workspace(const ImagePipelineOptions& images) : pipeline(images) {}
  ImagePipeline pipeline;
  EncodedImage encoded;
};

ImageDataset::ImageDataset(std::shared_ptr<const ImageSource> source, const ImagePipelineOptions& images)
    : source_(std::move(source)), images_(images) {
  if (!source_) throw UsageError("ImageDataset was given no source.");
  if (has_own_sizes(images_)) {
    throw UsageError(
        "ImageDataset needs images of one size, but ImagePipelineOptions::shorter_side and ::scale_jitter give each "
        "image its own size. Leave the option out, or read the images with an ImagePipeline in your own Dataset.");
  }
  give_back(std::make_unique<Workspace>(images_));  // its pipeline checks the options
}

ImageDataset::~ImageDataset() = default;

ImageShape ImageDataset::image_shape() const {
  return {.channels = images_.channels,
          .height = images_.height,
          .width = images_.width,
          .type = scalar_type(images_.type),
          .format = images_.layout == Layout::nhwc ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous};
}

std::int64_t ImageDataset::read(std::uint64_t index, SampleRandom& random, void* image) const {
  // Not given back after an exception, which is rare.
  auto workspace = take_workspace();
  source_->read(index, workspace->encoded);
  const auto file = std::as_bytes(std::span(workspace->encoded.bytes));
  const std::span<std::byte> to{static_cast<std::byte*>(image), workspace->pipeline.bytes()};
  const SampleRandom undrawn = random;
  try {
    workspace->pipeline.run(file, {}, random, to);
  } catch (const EnvironmentError&) {
    // Runs again for the same error with a name: making the name for every image would cost more than decoding a bad
    // image twice.
    random = undrawn;
    workspace->pipeline.run(file, name_of(source_->origin(index)), random, to);
  }
  const std::int64_t label = workspace->encoded.label;
  if (workspace->encoded.bytes.capacity() > kKeptBytes) workspace->encoded.bytes = {};
  give_back(std::move(workspace));
  return label;
}

DatasetIdentity ImageDataset::identity() const {
  DatasetIdentity lines{text(size(), " samples")};
  for (const auto& name : classes()) lines.push_back(text("class ", name));
  const auto origin_of = [this](std::uint64_t index) { return source_->origin(index); };
  for (auto& line : detail::describe_samples(size(), source_->name(), origin_of)) lines.push_back(std::move(line));
  return lines;
}

std::unique_ptr<ImageDataset::Workspace> ImageDataset::take_workspace() const {
  {
    const std::lock_guard lock(mutex_);
    if (!workspaces_.empty()) {
      auto workspace = std::move(workspaces_.back());
      workspaces_.pop_back();
      return workspace;
    }
  }
  return std::make_unique<Workspace>(images_);
}

void ImageDataset::give_back(std::unique_ptr<Workspace> workspace) const {
  const std::lock_guard lock(mutex_);
  workspaces_.push_back(std::move(workspace));
}

}  // namespace libtrain::data
