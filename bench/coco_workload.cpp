#include <bench/coco_workload.hpp>

#include <cstdint>
#include <vector>

#include <ATen/TensorIndexing.h>
#include <ATen/core/Tensor.h>

#include <libtrain/base/text.hpp>
#include <libtrain/data/data_loader.hpp>
#include <libtrain/data/detection.hpp>
#include <libtrain/data/storage/open_storage.hpp>

namespace libtrain::bench {

namespace {

constexpr std::uint64_t kImagesOfBatch = 2;
constexpr const char* kImageFolder = "images";

class CocoImages final : public LoaderWorkload {
 public:
  CocoImages(const std::shared_ptr<const data::Storage>& storage, const data::ShorterSide& sizes, int threads)
      : set_(storage, kImageFolder, "instances.json", {.images = {.shorter_side = sizes, .flip_probability = 0.5}}),
        loader_(set_, [](const std::vector<data::DetectionSample>& samples) { return data::pad_detections(samples); },
                {.batch_size = kImagesOfBatch, .workers = threads, .remainder = data::Remainder::exact}) {
    for (const auto& image : set_.annotations().images) {
      bytes_ += storage->info(text(kImageFolder, "/", set_.annotations().file_name(image))).size;
    }
  }

  // Crowds do not count: the peer leaves them out.
  void warm_up(Record& record) override {
    double sum = 0;
    std::int64_t pixels = 0;
    std::int64_t objects = 0;
    std::int64_t object_pixels = 0;
    for (auto& batch : loader_.epoch(epoch_++)) {
      sum += batch.images.sum(at::kDouble).item<double>();
      pixels += batch.sizes.prod(1).sum().item<std::int64_t>();
      for (const auto& target : batch.targets) {
        const auto single = target.crowd.logical_not();
        objects += single.sum().item<std::int64_t>();
        object_pixels += target.masks.index({single}).sum().item<std::int64_t>();
      }
    }
    record.set("batch", kImagesOfBatch)
        .set("pixels", pixels)
        .set("objects", objects)
        .set("mean", sum / static_cast<double>(3 * pixels))
        .set("object_pixels", object_pixels);
  }

  LoaderPass run() override {
    LoaderPass pass{.bytes = bytes_};
    for (auto& batch : loader_.epoch(epoch_++)) pass.samples += batch.targets.size();
    return pass;
  }

 private:
  const data::CocoDetection set_;
  data::DataLoaderOf<data::DetectionBatch> loader_;
  std::uint64_t bytes_ = 0;
  std::uint64_t epoch_ = 0;
};

}  // namespace

std::unique_ptr<LoaderWorkload> coco_images(const std::string& folder, const data::ShorterSide& sizes, int threads) {
  return std::make_unique<CocoImages>(data::open_storage(folder), sizes, threads);
}

}  // namespace libtrain::bench
