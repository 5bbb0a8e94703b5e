#include <libtrain/data/loader/loader_core.hpp>

#include <algorithm>
#include <utility>

#include <dlfcn.h>

#include <ATen/Parallel.h>

#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

namespace {

// More bad samples in a row are not an accident.
constexpr std::uint64_t kAttempts = 32;

// Keeps the random numbers of a batch apart from those of its samples.
constexpr std::uint64_t kBatchNumbers = 0x6261746368;

// As the sampler, but by name.
void require_fitting(const IndexedDataset& dataset, const LoaderOptions& options) {
  if (options.max_tokens == 0 || options.lengths.size() != dataset.size()) return;
  const auto longer =
      std::ranges::find_if(options.lengths, [&](std::uint64_t length) { return length > options.max_tokens; });
  if (longer == options.lengths.end()) return;
  const auto index = static_cast<std::uint64_t>(longer - options.lengths.begin());
  throw UsageError(text("'", dataset.origin(index).path, "' has ", *longer, " tokens, and max_tokens is ",
                        options.max_tokens, ". Raise it, or truncate texts."));
}

SamplerOptions sampler_options(const IndexedDataset& dataset, const LoaderOptions& options, const Shard& shard) {
  require_fitting(dataset, options);
  return {.dataset_size = dataset.size(),
          .batch_size = options.batch_size,
          .max_tokens = options.max_tokens,
          .lengths = options.lengths,
          .token_count = options.token_count,
          .seed = options.seed.value_or(shard.seed),
          .order = options.order,
          .remainder = options.remainder,
          .blocks = options.order == Order::blocks ? dataset.blocks() : std::vector<std::uint64_t>{},
          .blocks_at_once = options.blocks_at_once,
          .repetitions = options.repetitions,
          .groups = options.groups,
          .group_chunk = options.group_chunk};
}

// Makes torch's operators run on the calling thread alone when this thread calls them. at::set_num_threads(1) would
// also change the number for threads that use torch for the first time later, such as autograd's.
void keep_torch_on_this_thread() {
  // Torch sets the number of a thread at its first operator, which must therefore be before ours. This function is in
  // torch's library: the thread-local state of an inline function in its headers would belong to this library.
  at::get_num_threads();
  // OpenMP keeps the number per thread. The function is looked up in the OpenMP that torch loaded; linking one
  // ourselves could bring a second runtime into the process. A torch without OpenMP has nothing to set.
  using SetNumThreads = void (*)(int);
  if (auto* symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads")) reinterpret_cast<SetNumThreads>(symbol)(1);
}

}  // namespace

LoaderCore::LoaderCore(const IndexedDataset& dataset, const LoaderOptions& options, const RankShard& shard)
    : dataset_(dataset),
      shard_(shard),
      workers_(options.workers),
      slots_(static_cast<std::size_t>(std::max(options.prefetch, 1))),
      seed_(options.seed.value_or(shard.seed)),
      sampler_(sampler_options(dataset, options, shard), shard),
      bad_samples_(options.bad_samples, dataset.size(), shard.rank, shard.output_directory, shard.run_id),
      device_(shard.device.is_cpu() ? nullptr : std::make_unique<const DeviceCopy>(shard.device)) {
  if (workers_ < 0) throw UsageError(text("workers is ", workers_, ". It must be 0 or more."));
  if (options.prefetch < 1) throw UsageError(text("prefetch is ", options.prefetch, ". It must be at least 1."));
}

std::uint64_t LoaderCore::position_of_step(std::uint64_t epoch, std::uint64_t step) const {
  const std::uint64_t steps = sampler_.steps(0, epoch);
  if (step > steps) {
    throw UsageError(text("Step ", step, " is past the end of an epoch of ", steps,
                          " steps. Count steps from the start of each epoch."));
  }
  return sampler_.position_after(step, 0, epoch);
}

void LoaderCore::resume(const LoaderState& state) {
  if (state.seed != seed_) {
    throw UsageError(text("The loader's state was saved with seed ", state.seed, ", but this loader has seed ", seed_,
                          ". Resume with the same --seed."));
  }
  if (state.content == 0 || state.order == 0) {
    log_warning(text("The loader's state has no digest of ", state.content == 0 ? "the data" : "",
                     state.content == 0 && state.order == 0 ? " and of " : "", state.order == 0 ? "the order" : "",
                     ", so that other data or another order may not be noticed."));
  }
  const Content& own = content();
  if (state.dataset_size != dataset_.size() || (state.content != 0 && state.content != own.digest)) {
    const auto before = state.data.empty() ? text(state.dataset_size, " samples") : state.data;
    throw UsageError(text("The loader's state was saved for other data (", before, "); this loader reads ", own.summary,
                          before == own.summary ? ", which differs in samples that are not shown" : "",
                          ". Resume with the same data."));
  }
  if (state.order != 0 && state.order != sampler_.fingerprint()) {
    throw UsageError(
        "The loader's state was saved with another sample order. Resume with the same Order, blocks_at_once, "
        "repetitions, groups, group_chunk and division into shards.");
  }
  const std::size_t ranks = state.bad_samples.size();
  const auto world_size = static_cast<std::size_t>(shard_.world_size);
  const std::size_t first = ranks == 0 ? 0 : static_cast<std::size_t>(shard_.rank) % ranks;
  for (std::size_t rank = first; rank < ranks; rank += world_size) bad_samples_.resume(state.bad_samples[rank]);
}

LoaderState LoaderCore::state_at(std::uint64_t epoch, std::uint64_t position) const {
  return {.seed = seed_,
          .epoch = epoch,
          .position = position,
          .dataset_size = dataset_.size(),
          .order = sampler_.fingerprint(),
          .content = content().digest,
          .data = content().summary,
          .bad_samples = {bad_samples_.indices()}};
}

SampleRandom LoaderCore::batch_random(std::uint64_t epoch, std::span<const std::uint64_t> indices) const {
  return {seed_ ^ kBatchNumbers, epoch, indices.empty() ? 0 : indices.front()};
}

LoaderStatistics LoaderCore::statistics() const {
  const std::lock_guard lock(mutex_);
  LoaderStatistics result = finished_epochs_;
  if (running_ != nullptr) result += running_->statistics();
  result.bad_samples = bad_samples_.size();
  return result;
}

std::optional<std::uint64_t> LoaderCore::replace(std::uint64_t epoch, std::uint64_t bad, std::uint64_t attempt,
                                                 const EnvironmentError& error) const {
  if (!bad_samples_.are_allowed() || attempt == kAttempts || dataset_.size() == 1) return std::nullopt;
  const std::uint64_t next = replacement_of(bad, seed_, epoch, attempt, dataset_.size());
  bad_samples_.add(
      {.epoch = epoch, .index = bad, .origin = dataset_.origin(bad), .reason = error.what(), .replacement = next});
  return next;
}

// Computed on demand: it takes a while for millions of samples.
const LoaderCore::Content& LoaderCore::content() const {
  if (!content_) note_identity(dataset_.identity());
  return *content_;
}

void LoaderCore::note_identity(const DatasetIdentity& identity) const {
  content_ = {.digest = digest_of(identity), .summary = summary_of(identity)};
}

void LoaderCore::require_same_data() {
  if (is_compared_ || !shard_.require_same) return;
  const DatasetIdentity identity = dataset_.identity();
  note_identity(identity);
  shard_.require_same(identity);
  is_compared_ = true;
}

EpochCore::EpochCore(LoaderCore& loader, std::unique_ptr<BatchMaker> maker, std::uint64_t epoch, std::uint64_t position)
    : loader_(loader),
      maker_(std::move(maker)),
      epoch_(epoch),
      start_(position),
      order_(loader.sampler_.order(epoch)),
      engine_(*maker_, {.batches = loader.sampler_.batches(position, epoch),
                        .workers = loader.workers_,
                        .slots = loader.slots_,
                        .indices = [this](std::uint64_t batch) { return indices_of(batch); },
                        .prepare_thread = &keep_torch_on_this_thread}) {
  // After the workers have started: it may list a store or look for thousands of copies before it returns.
  read_ahead_ = loader.dataset_.read_ahead([this] { return all_indices(); });
  loader.require_same_data();
  const std::lock_guard lock(loader.mutex_);
  loader.running_ = &engine_;
}

EpochCore::~EpochCore() {
  const std::lock_guard lock(loader_.mutex_);
  loader_.finished_epochs_ += engine_.statistics();
  if (loader_.running_ == &engine_) loader_.running_ = nullptr;
}

std::optional<std::size_t> EpochCore::next() {
  const auto slot = engine_.next();
  has_ended_ = !slot;
  return slot;
}

void EpochCore::give_back() {
  samples_of_batch_ = engine_.give_back();
  samples_taken_ += samples_of_batch_;
  ++taken_;
  if (read_ahead_) read_ahead_->advance(samples_taken_);
}

LoaderState EpochCore::state() const {
  const Sampler& sampler = loader_.sampler_;
  // With Remainder::uneven a rank may take its last batch before the others take theirs.
  const std::uint64_t steps = has_ended_ ? sampler.steps(start_, epoch_) : taken_;
  return loader_.state_at(epoch_, sampler.position_after(steps, start_, epoch_));
}

std::vector<std::uint64_t> EpochCore::indices_of(std::uint64_t batch) const {
  return loader_.sampler_.batch(order_, batch, start_);
}

std::vector<std::uint64_t> EpochCore::all_indices() const {
  std::vector<std::uint64_t> all;
  const std::uint64_t batches = loader_.sampler_.batches(start_, epoch_);
  for (std::uint64_t batch = 0; batch < batches; ++batch) {
    for (const std::uint64_t number : indices_of(batch)) all.push_back(number % loader_.dataset_.size());
  }
  return all;
}

}  // namespace libtrain::data::detail
