#include <libtrain/data/loader_epoch.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/data/data_loader.hpp>
#include <libtrain/data/intra_op_threads.hpp>
#include <libtrain/data/loader/batch_engine.hpp>
#include <libtrain/data/loader/image_batches.hpp>
#include <libtrain/data/read_ahead.hpp>

namespace libtrain::data {

struct LoaderEpoch::Running {
  Running(DataLoader& of, const detail::ImageBatchParts& parts, std::uint64_t number, std::uint64_t from)
      : loader(of),
        epoch(number),
        start(from),
        batches(parts, number, from, of.slots_),
        engine(batches, {.batches = parts.sampler.batches(from),
                         .workers = of.workers_,
                         .slots = of.slots_,
                         .prepare_thread = &detail::keep_torch_on_this_thread}) {
    // With the workers at work: it may list a store or look for thousands of copies before it returns.
    read_ahead = loader.dataset_.read_ahead([this] { return batches.indices(); });
    const std::lock_guard lock(loader.mutex_);
    loader.running_ = &engine;
  }
  Running(const Running&) = delete;  // threads work for this very object
  Running& operator=(const Running&) = delete;
  ~Running() {
    const std::lock_guard lock(loader.mutex_);
    loader.finished_epochs_ += engine.statistics();
    if (loader.running_ == &engine) loader.running_ = nullptr;
  }

  DataLoader& loader;
  const std::uint64_t epoch;
  const std::uint64_t start;  // a position in its order
  std::uint64_t taken = 0;
  std::uint64_t samples_taken = 0;
  detail::ImageBatches batches;
  // Begins after the engine and goes after it: a worker that waits for what is being fetched for it is told to stop
  // first, or it would begin to fetch that itself.
  std::unique_ptr<ReadAhead> read_ahead;
  detail::BatchEngine engine;
};

LoaderEpoch::LoaderEpoch(DataLoader& loader, const detail::ImageBatchParts& parts, std::uint64_t epoch,
                         std::uint64_t position)
    : running_(std::make_unique<Running>(loader, parts, epoch, position)) {}

LoaderEpoch::LoaderEpoch(LoaderEpoch&&) noexcept = default;
LoaderEpoch& LoaderEpoch::operator=(LoaderEpoch&&) noexcept = default;
LoaderEpoch::~LoaderEpoch() = default;

LoaderEpoch::Running& LoaderEpoch::running() const {
  if (!running_) throw UsageError("An epoch of a loader is used that was moved from: use the object that it moved to.");
  return *running_;
}

std::optional<Batch> LoaderEpoch::next() {
  Running& epoch = running();
  const auto slot = epoch.engine.next();
  if (!slot) return std::nullopt;
  std::optional<Batch> batch = epoch.batches.take(*slot);
  epoch.engine.give_back();
  ++epoch.taken;
  epoch.samples_taken += static_cast<std::uint64_t>(batch->size());
  if (epoch.read_ahead) epoch.read_ahead->advance(epoch.samples_taken);
  return batch;
}

// The batch before goes first: its memory can be had again.
void LoaderEpoch::advance() {
  current_.reset();
  current_ = next();
}

LoaderState LoaderEpoch::state() const {
  const Running& epoch = running();
  const Sampler& sampler = epoch.loader.sampler();
  // With Remainder::uneven a rank may be through before the others are.
  const bool ended = epoch.taken == sampler.batches(epoch.start);
  const std::uint64_t steps = ended ? sampler.steps(epoch.start) : epoch.taken;
  return epoch.loader.state_at(epoch.epoch, sampler.position_after(steps, epoch.start));
}

}  // namespace libtrain::data
