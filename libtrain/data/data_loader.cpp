#include <libtrain/data/data_loader.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

namespace {

LoaderOptions of_all_loaders(const DataLoaderOptions& options) {
  return {.batch_size = options.batch_size,
          .workers = options.workers,
          .seed = options.seed,
          .order = options.order,
          .remainder = options.remainder,
          .prefetch = options.prefetch,
          .bad_samples = options.bad_samples,
          .blocks_at_once = options.blocks_at_once,
          .repetitions = options.repetitions};
}

// Labels must be below it; 0: any label is allowed.
std::int64_t classes_of(const Dataset& dataset, const DataLoaderOptions& options) {
  if (!options.classes && !options.mixing) return 0;
  const std::int64_t of_model = options.classes ? *options.classes : options.mixing->classes;
  if (of_model < 1) throw UsageError(text("classes is ", of_model, ". Give the model's number of classes."));
  if (options.mixing && options.mixing->classes != of_model) {
    throw UsageError(text("classes is ", of_model, " and mixing has ", options.mixing->classes,
                          " classes. Set both to the model's number of classes."));
  }
  if (const auto of_data = dataset.class_count(); of_data > of_model) {
    throw UsageError(text("The data set has ", of_data, " classes, but the model has ", of_model,
                          ". Use a model with more classes, or data with fewer."));
  }
  return of_model;
}

auto image_batches(const Dataset& dataset, const DataLoaderOptions& options, const RankShard& shard) {
  if (options.mixing) detail::check_mixing(*options.mixing);
  const auto* in_place = dynamic_cast<const InPlaceDataset*>(&dataset);
  const auto shape = in_place == nullptr ? std::nullopt : std::optional(in_place->image_shape());
  std::optional<NormalizeOnDevice> normalize;
  if (options.normalize_on_device) {
    if (shape) detail::require_bytes(*shape);
    normalize.emplace(*options.normalize_on_device, shard.device);
  }
  // Those that are ready or being made, the loop's, and one that is being copied to a GPU.
  const auto kept = static_cast<std::size_t>(std::max(options.prefetch, 1)) + 2;
  std::shared_ptr<detail::ImageLoaderState> images(
      new detail::ImageLoaderState{.dataset = dataset,
                                   .in_place = in_place,
                                   .transform = options.transform,
                                   .classes = classes_of(dataset, options),
                                   .mixing = options.mixing,
                                   .normalize = std::move(normalize),
                                   .memory = {/*pinned=*/!shard.device.is_cpu(), kept},
                                   .shape = shape});
  return [images](const detail::LoaderCore& loader, std::uint64_t epoch) {
    return std::make_unique<detail::ImageBatches>(*images, loader, epoch);
  };
}

}  // namespace

DataLoader::DataLoader(const Dataset& dataset, const DataLoaderOptions& options, const RankShard& shard)
    : DataLoaderOf(dataset, of_all_loaders(options), shard, image_batches(dataset, options, shard)) {}

DataLoader::DataLoader(const Dataset& dataset, const DataLoaderOptions& options, Shard shard)
    : DataLoader(dataset, options, RankShard(shard, c10::kCPU, {})) {}

}  // namespace libtrain::data
