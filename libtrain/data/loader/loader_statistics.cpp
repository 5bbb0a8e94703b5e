#include <libtrain/data/loader/loader_statistics.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <libtrain/base/detail/digits.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

namespace {

// A loop that waits for a smaller share of its time would hardly gain from a faster loader.
constexpr double kNoticeableWait = 0.05;

double seconds_of(const LoaderStatistics& statistics, LoaderStage stage) {
  return statistics.stage_seconds[static_cast<std::size_t>(stage)];
}

std::string percent(double part, double whole) {
  return text(whole > 0 ? std::lround(100 * part / whole) : 0, "%");
}

std::string advice(LoaderBottleneck bottleneck) {
  switch (bottleneck) {
    case LoaderBottleneck::reading:
      return "a local copy (--stage, --cache), shards, or more workers would help";
    case LoaderBottleneck::decoding:
      return "more workers, smaller images, or shards with restart markers would help";
    case LoaderBottleneck::transform:
      return "more workers or fewer augmentations would help";
    case LoaderBottleneck::unknown:
    case LoaderBottleneck::model:
      break;
  }
  return "a faster loader would not help";
}

}  // namespace

double LoaderStatistics::busy_seconds() const {
  return std::accumulate(stage_seconds.begin(), stage_seconds.end(), 0.0);
}

LoaderBottleneck LoaderStatistics::bottleneck() const {
  if (batches == 0) return LoaderBottleneck::unknown;
  if (seconds_waiting <= kNoticeableWait * seconds) return LoaderBottleneck::model;
  const double reading = seconds_of(*this, LoaderStage::read);
  const double decode = seconds_of(*this, LoaderStage::decode);
  const double transform = seconds_of(*this, LoaderStage::transform) + seconds_of(*this, LoaderStage::collate);
  if (reading >= std::max(decode, transform)) return LoaderBottleneck::reading;
  return decode >= transform ? LoaderBottleneck::decoding : LoaderBottleneck::transform;
}

LoaderStatistics& LoaderStatistics::operator+=(const LoaderStatistics& other) {
  const auto asked = static_cast<double>(batches + other.batches);
  if (asked > 0) {
    ready_batches =
        (ready_batches * static_cast<double>(batches) + other.ready_batches * static_cast<double>(other.batches)) /
        asked;
  }
  workers = std::max(workers, other.workers);
  batch_slots = std::max(batch_slots, other.batch_slots);
  batches += other.batches;
  samples += other.samples;
  bad_samples += other.bad_samples;
  read.bytes += other.read.bytes;
  read.cache_hits += other.read.cache_hits;
  read.cache_misses += other.read.cache_misses;
  seconds += other.seconds;
  seconds_waiting += other.seconds_waiting;
  worker_seconds_waiting += other.worker_seconds_waiting;
  for (std::size_t stage = 0; stage < kLoaderStages; ++stage) stage_seconds[stage] += other.stage_seconds[stage];
  return *this;
}

std::string describe(const LoaderStatistics& statistics) {
  const auto bottleneck = statistics.bottleneck();
  if (bottleneck == LoaderBottleneck::unknown) return "No batch was taken.";
  const auto waited = text("The loop waited ", libtrain::detail::decimal(statistics.seconds_waiting, 1), " s of ",
                           libtrain::detail::decimal(statistics.seconds, 1), " s (",
                           percent(statistics.seconds_waiting, statistics.seconds), ") for data; ");
  if (bottleneck == LoaderBottleneck::model)
    return text(waited, "the model is the bottleneck: ", advice(bottleneck), ".");
  const double read = seconds_of(statistics, LoaderStage::read);
  const double decode = seconds_of(statistics, LoaderStage::decode);
  const bool reads = bottleneck == LoaderBottleneck::reading;
  const bool decodes = bottleneck == LoaderBottleneck::decoding;
  const double most = reads ? read : decodes ? decode : statistics.busy_seconds() - read - decode;
  const auto* const what = reads ? "reading" : decodes ? "decoding" : "transforming";
  const int threads = std::max(statistics.workers, 1);
  return text(waited, what, " is the bottleneck (",
              percent(most, statistics.busy_seconds() + statistics.worker_seconds_waiting), " of the time of ", threads,
              threads == 1 ? " thread" : " threads", "): ", advice(bottleneck), ".");
}

}  // namespace libtrain::data
