#include <libtrain/data/loader_epoch.hpp>

#include <libtrain/data/data_loader.hpp>
#include <libtrain/data/intra_op_threads.hpp>

namespace libtrain::data {

LoaderEpoch::LoaderEpoch(DataLoader& loader, const detail::ImageBatchParts& parts, std::uint64_t epoch,
                         std::uint64_t position)
    : loader_(loader),
      epoch_(epoch),
      start_(position),
      batches_(parts, epoch, position, loader.slots_),
      engine_(batches_, {.batches = parts.sampler.batches(position),
                         .workers = loader.workers_,
                         .slots = loader.slots_,
                         .prepare_thread = &detail::keep_torch_on_this_thread}) {
  // With the workers at work: it may list a store or look for thousands of copies before it returns.
  read_ahead_ = loader.dataset_.read_ahead([this] { return batches_.indices(); });
  const std::lock_guard lock(loader_.mutex_);
  loader_.running_ = &engine_;
}

LoaderEpoch::~LoaderEpoch() {
  const std::lock_guard lock(loader_.mutex_);
  loader_.finished_epochs_ += engine_.statistics();
  if (loader_.running_ == &engine_) loader_.running_ = nullptr;
}

std::optional<Batch> LoaderEpoch::next() {
  const auto slot = engine_.next();
  if (!slot) return std::nullopt;
  std::optional<Batch> batch = batches_.take(*slot);
  engine_.give_back();
  ++taken_;
  samples_taken_ += static_cast<std::uint64_t>(batch->size());
  if (read_ahead_) read_ahead_->advance(samples_taken_);
  return batch;
}

// The batch before goes first: its memory can be had again.
void LoaderEpoch::advance() {
  current_.reset();
  current_ = next();
}

LoaderState LoaderEpoch::state() const {
  const Sampler& sampler = loader_.sampler();
  // With Remainder::uneven a rank may be through before the others are.
  const bool ended = taken_ == sampler.batches(start_);
  const std::uint64_t steps = ended ? sampler.steps(start_) : taken_;
  return loader_.state_at(epoch_, sampler.position_after(steps, start_));
}

}  // namespace libtrain::data
