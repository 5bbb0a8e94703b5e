#include <libtrain/data/data_loader.hpp>

#include <algorithm>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/loader/batch_engine.hpp>
#include <libtrain/data/loader/image_batches.hpp>

namespace libtrain::data {

namespace {

SamplerOptions sampler_options(const Dataset& dataset, const DataLoaderOptions& options, const Shard& shard) {
  return {.dataset_size = dataset.size(),
          .batch_size = options.batch_size,
          .seed = options.seed.value_or(shard.seed),
          .order = options.order,
          .remainder = options.remainder,
          .blocks = options.order == Order::blocks ? dataset.blocks() : std::vector<std::uint64_t>{},
          .blocks_at_once = options.blocks_at_once};
}

// How many classes labels may be of; 0: any label will do.
std::int64_t classes_of(const Dataset& dataset, const DataLoaderOptions& options) {
  if (!options.classes && !options.mixing) return 0;
  const std::int64_t of_model = options.classes ? *options.classes : options.mixing->classes;
  if (of_model < 1) throw UsageError(text("classes is ", of_model, ": give the number of the model's classes"));
  if (options.mixing && options.mixing->classes != of_model) {
    throw UsageError(text("classes is ", of_model, " and mixing has ", options.mixing->classes,
                          " classes: give the model's number to both"));
  }
  if (const auto of_data = dataset.class_count(); of_data > of_model) {
    throw UsageError(text("the data set has ", of_data, " classes, but the model has ", of_model,
                          ": use a model with more classes, or data with fewer"));
  }
  return of_model;
}

}  // namespace

DataLoader::DataLoader(const Dataset& dataset, DataLoaderOptions options, const RankShard& shard)
    : dataset_(dataset),
      shard_(shard),
      workers_(options.workers),
      slots_(static_cast<std::size_t>(std::max(options.prefetch, 1))),
      seed_(options.seed.value_or(shard.seed)),
      mixing_(options.mixing),
      sampler_(sampler_options(dataset, options, shard), shard),
      bad_samples_(options.bad_samples, dataset.size(), shard.rank, shard.output_directory, shard.run_id),
      reader_(dataset, seed_, std::move(options.transform), bad_samples_, classes_of(dataset, options)),
      device_(shard.device.is_cpu() ? nullptr : std::make_unique<const detail::DeviceCopy>(shard.device)),
      memory_(/*pinned=*/device_ != nullptr, slots_ + 2) {  // the loop's batch, and one on its way there
  if (workers_ < 0) throw UsageError(text("workers is ", workers_, ": it must be 0 or more"));
  if (options.prefetch < 1) throw UsageError(text("prefetch is ", options.prefetch, ": it must be at least 1"));
  if (mixing_) detail::check_mixing(*mixing_);
}

DataLoader::DataLoader(const Dataset& dataset, DataLoaderOptions options, Shard shard)
    : DataLoader(dataset, std::move(options), RankShard(shard, c10::kCPU, {})) {}

LoaderEpoch DataLoader::epoch(std::uint64_t epoch, std::uint64_t first_step) & {
  if (first_step > sampler_.steps()) {
    throw UsageError(text("step ", first_step, " is past the end of an epoch of ", sampler_.steps(),
                          " steps: count steps from the start of each epoch"));
  }
  return epoch_from(epoch, sampler_.position_after(first_step));
}

LoaderEpoch DataLoader::resume(const LoaderState& state) & {
  if (state.seed != seed_) {
    throw UsageError(text("the loader's state is of the order of seed ", state.seed, ", but this loader has seed ",
                          seed_, ": resume with the same --seed"));
  }
  if (state.content == 0 || state.order == 0) {
    log_warning("The loader's state does not say of which data and order it is: only seed and size are compared.");
  }
  const Content& own = content();
  if (state.dataset_size != dataset_.size() || (state.content != 0 && state.content != own.digest)) {
    const auto before = state.data.empty() ? text(state.dataset_size, " samples") : state.data;
    throw UsageError(text("the loader's state is of other data (", before, ") than this loader reads (", own.summary,
                          ")", before == own.summary ? ", which differ in between" : "",
                          ": resume with the same data"));
  }
  if (state.order != 0 && state.order != sampler_.fingerprint()) {
    throw UsageError(
        "the loader's state is of another order: resume with the same Order, blocks_at_once and division into shards");
  }
  const std::size_t ranks = state.bad_samples.size();
  const auto world_size = static_cast<std::size_t>(shard_.world_size);
  const std::size_t first = ranks == 0 ? 0 : static_cast<std::size_t>(shard_.rank) % ranks;
  for (std::size_t rank = first; rank < ranks; rank += world_size) bad_samples_.resume(state.bad_samples[rank]);
  return epoch_from(state.epoch, state.position);
}

LoaderEpoch DataLoader::epoch_from(std::uint64_t epoch, std::uint64_t position) {
  return LoaderEpoch(*this,
                     {.sampler = sampler_,
                      .reader = reader_,
                      .memory = memory_,
                      .device = device_.get(),
                      .mixing = mixing_,
                      .seed = seed_},
                     epoch, position);
}

// Only when it is asked for: it takes a while for millions of samples.
const DataLoader::Content& DataLoader::content() const {
  std::call_once(content_known_, [this] {
    const DatasetIdentity identity = dataset_.identity();
    content_ = {.digest = detail::digest_of(identity), .summary = detail::summary_of(identity)};
  });
  return content_;
}

LoaderState DataLoader::state_at(std::uint64_t epoch, std::uint64_t position) const {
  return {.seed = seed_,
          .epoch = epoch,
          .position = position,
          .dataset_size = dataset_.size(),
          .order = sampler_.fingerprint(),
          .content = content().digest,
          .data = content().summary,
          .bad_samples = {bad_samples_.indices()}};
}

LoaderStatistics DataLoader::statistics() const {
  const std::lock_guard lock(mutex_);
  LoaderStatistics result = finished_epochs_;
  if (running_ != nullptr) result += running_->statistics();
  result.bad_samples = bad_samples_.size();
  return result;
}

}  // namespace libtrain::data
