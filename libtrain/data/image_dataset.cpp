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

// One large file should not keep its memory for the rest of the run.
constexpr std::size_t kKeptBytes = std::size_t{16} << 20;

// Of many pictures in a shard, which one it is.
std::string name_of(const SampleOrigin& origin) {
  return origin.offset == 0 ? origin.path : text(origin.path, " at byte ", origin.offset);
}

}  // namespace

// The memory that a thread needs to make a picture; it is kept from one to the next.
struct ImageDataset::Workspace {
  explicit Workspace(const ImagePipelineOptions& images) : pipeline(images) {}
  ImagePipeline pipeline;
  EncodedImage encoded;
};

void ImageDataset::WorkspaceDeleter::operator()(Workspace* workspace) const {
  delete workspace;
}

ImageDataset::ImageDataset(std::shared_ptr<const ImageSource> source, const ImagePipelineOptions& images)
    : source_(std::move(source)), images_(images) {
  if (!source_) throw UsageError("A data set of images has no source.");
  if (images_.shorter_side) {
    throw UsageError(
        "An ImageDataset writes pictures into a batch, where all have one size, and ImagePipelineOptions::shorter_side "
        "gives each its own. Leave the option out, or read the pictures with an ImagePipeline in a Dataset of your "
        "own.");
  }
  give_back(OwnedWorkspace(new Workspace(images_)));  // whose pipeline has checked the options
}

ImageShape ImageDataset::image_shape() const {
  return {.channels = images_.channels,
          .height = images_.height,
          .width = images_.width,
          .type = scalar_type(images_.type),
          .format = images_.layout == Layout::nhwc ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous};
}

std::int64_t ImageDataset::read(std::uint64_t index, SampleRandom& random, void* image) const {
  // Lost where something throws, which is rare.
  auto workspace = take_workspace();
  source_->read(index, workspace->encoded);
  const auto file = std::as_bytes(std::span(workspace->encoded.bytes));
  const std::span<std::byte> to{static_cast<std::byte*>(image), workspace->pipeline.bytes()};
  const SampleRandom undrawn = random;
  try {
    workspace->pipeline.run(file, {}, random, to);
  } catch (const EnvironmentError&) {
    // Again, for the same error with a name: to make that for every picture would cost more than to try a bad one
    // twice.
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

ImageDataset::OwnedWorkspace ImageDataset::take_workspace() const {
  {
    const std::lock_guard lock(mutex_);
    if (!workspaces_.empty()) {
      auto workspace = std::move(workspaces_.back());
      workspaces_.pop_back();
      return workspace;
    }
  }
  return OwnedWorkspace(new Workspace(images_));
}

void ImageDataset::give_back(OwnedWorkspace workspace) const {
  const std::lock_guard lock(mutex_);
  workspaces_.push_back(std::move(workspace));
}

}  // namespace libtrain::data
