#include <libtrain/data/data_loader.hpp>

#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/intra_op_threads.hpp>

namespace libtrain::data {

DataLoader::DataLoader(const Dataset& dataset, DataLoaderOptions options, Shard shard)
    : workers_(options.workers),
      prefetch_(options.prefetch),
      sampler_({.dataset_size = dataset.size(),
                .batch_size = options.batch_size,
                .seed = options.seed.value_or(shard.seed),
                .order = options.order,
                .remainder = options.remainder},
               shard),
      reader_(dataset, options.seed.value_or(shard.seed), std::move(options.transform)) {
  if (workers_ < 0) throw UsageError(text("workers is ", workers_, ": it must be 0 or more"));
  if (prefetch_ < 1) throw UsageError(text("prefetch is ", prefetch_, ": it must be at least 1"));
}

LoaderEpoch DataLoader::epoch(std::uint64_t epoch, std::uint64_t first_step) & {
  const auto window = static_cast<std::uint64_t>(workers_) * static_cast<std::uint64_t>(prefetch_);
  const auto read = [this, epoch](std::uint64_t step, const std::stop_token& stop) {
    if (workers_ > 0) detail::keep_torch_on_this_thread();
    return reader_.read(epoch, sampler_.batch(epoch, step), stop);
  };
  return LoaderEpoch(first_step, sampler_.batches_per_epoch(), workers_, window, read, seconds_waiting_);
}

}  // namespace libtrain::data
