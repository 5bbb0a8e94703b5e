#include <bench/picture_workload.hpp>

#include <cstdint>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <bench/decode_then_crop.hpp>
#include <libtrain/data/data_loader.hpp>
#include <libtrain/data/dataset.hpp>
#include <libtrain/data/image/image_pipeline.hpp>
#include <libtrain/data/image_dataset.hpp>

namespace libtrain::bench {

namespace {

constexpr std::uint64_t kBatch = 64;

data::ImagePipelineOptions half_pictures() {
  auto options = data::training_images(224);
  options.type = data::PixelType::float16;
  options.layout = data::Layout::nhwc;
  return options;
}

class PictureWorkload final : public LoaderWorkload {
 public:
  PictureWorkload(std::shared_ptr<const data::ImageSource> source, std::unique_ptr<const data::Dataset> dataset,
                  int threads)
      : source_(std::move(source)),
        dataset_(std::move(dataset)),
        loader_(*dataset_, data::DataLoaderOptions{
                               .batch_size = kBatch, .workers = threads, .remainder = data::Remainder::exact}) {}

  void warm_up(Record& record) override {
    record.set("batch", kBatch);
    double sum = 0;
    std::int64_t elements = 0;
    for (auto& batch : loader_.epoch(epoch_++)) {
      if (elements == 0) describe(batch.images, record);
      sum += batch.images.sum(at::kDouble).item<double>();
      elements += batch.images.numel();
    }
    record.set("mean", sum / static_cast<double>(elements));
    count_bytes();
  }

  LoaderPass run() override {
    LoaderPass pass{.bytes = bytes_};
    for (auto& batch : loader_.epoch(epoch_++)) pass.samples += static_cast<std::uint64_t>(batch.size());
    return pass;
  }

 private:
  static void describe(const at::Tensor& images, Record& record) {
    record.set("shape", images.sizes().vec())
        .set("dtype", images.scalar_type() == at::kHalf ? "float16" : c10::toString(images.scalar_type()))
        .set("channels_last", images.is_contiguous(at::MemoryFormat::ChannelsLast));
  }

  void count_bytes() {
    data::EncodedImage image;
    for (std::uint64_t index = 0; index < source_->size(); ++index) {
      source_->read(index, image);
      bytes_ += image.bytes.size();
    }
  }

  std::shared_ptr<const data::ImageSource> source_;
  std::unique_ptr<const data::Dataset> dataset_;
  data::DataLoader loader_;
  std::uint64_t bytes_ = 0;
  std::uint64_t epoch_ = 0;
};

}  // namespace

std::unique_ptr<LoaderWorkload> random_resized_crops(std::shared_ptr<const data::ImageSource> source, int threads) {
  auto dataset = std::make_unique<const data::ImageDataset>(source, half_pictures());
  return std::make_unique<PictureWorkload>(std::move(source), std::move(dataset), threads);
}

std::unique_ptr<LoaderWorkload> decoded_then_cropped(std::shared_ptr<const data::ImageSource> source, int threads) {
  auto dataset = std::make_unique<const DecodeThenCrop>(source, half_pictures());
  return std::make_unique<PictureWorkload>(std::move(source), std::move(dataset), threads);
}

}  // namespace libtrain::bench
