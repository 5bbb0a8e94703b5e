#include <libtrain/train/synchronization_summary.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include <libtrain/base/detail/digits.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/observe/record.hpp>

namespace libtrain {

namespace {

// Smaller differences between ranks, as a share of the run's time, are noise.
constexpr double kMeaningfulShare = 0.02;

std::vector<double> to_numbers(const SynchronizationStatistics& statistics, double seconds) {
  std::vector<double> numbers{seconds, static_cast<double>(statistics.rounds), statistics.seconds_waiting,
                              statistics.seconds_reducing};
  for (const auto& bucket : statistics.buckets) {
    numbers.push_back(static_cast<double>(bucket.bytes));
    numbers.push_back(bucket.seconds_reducing);
    numbers.push_back(static_cast<double>(bucket.reductions));
  }
  return numbers;
}

SynchronizationStatistics from_numbers(const std::vector<double>& numbers) {
  SynchronizationStatistics statistics{.rounds = static_cast<std::int64_t>(numbers.at(1)),
                                       .seconds_waiting = numbers.at(2),
                                       .seconds_reducing = numbers.at(3)};
  for (std::size_t index = 4; index + 2 < numbers.size(); index += 3) {
    statistics.buckets.push_back({.bytes = static_cast<std::size_t>(numbers[index]),
                                  .seconds_reducing = numbers[index + 1],
                                  .reductions = static_cast<std::int64_t>(numbers[index + 2])});
  }
  return statistics;
}

// As bytes, because some communicators accept only tensors on a GPU.
std::vector<std::vector<double>> gather(const std::vector<double>& mine, Communicator& communicator) {
  const CallPurpose purpose{communicator, "summarize()"};
  std::string bytes(mine.size() * sizeof(double), '\0');
  std::memcpy(bytes.data(), mine.data(), bytes.size());
  std::vector<std::vector<double>> all;
  for (const auto& received : communicator.all_gather_bytes(bytes)) {
    auto& numbers = all.emplace_back(received.size() / sizeof(double));
    std::memcpy(numbers.data(), received.data(), numbers.size() * sizeof(double));
  }
  return all;
}

Record to_record(const detail::SynchronizationSummary& summary) {
  Record record{"synchronization"};
  record.set("rounds", summary.rounds)
      .set("exposed_communication_ms_per_step", summary.exposed_communication_ms_per_step)
      .set("overlap_share", summary.overlap_share)
      .set("bucket_bytes_per_s", summary.bucket_bytes_per_s);
  if (summary.slowest_rank) {
    record.set("slowest_rank", *summary.slowest_rank);
  } else {
    record.set("slowest_rank", nullptr);
  }
  return record;
}

}  // namespace

void summarize(Context& context, const GradientSynchronizer& synchronizer, std::string_view name) {
  std::vector<SynchronizationStatistics> ranks;
  double seconds = 0;
  const auto mine = to_numbers(synchronizer.statistics(), context.seconds());
  for (const auto& numbers : gather(mine, context.communicator())) {
    ranks.push_back(from_numbers(numbers));
    seconds = std::max(seconds, numbers.front());
  }
  const auto summary = detail::summary_of(ranks, seconds);
  context.summary().set(name, to_record(summary));
  if (context.rank() == 0 && context.world_size() > 1 && summary.rounds > 0) {
    log_info(text(name, ": ", detail::to_text(summary)));
  }
}

}  // namespace libtrain

namespace libtrain::detail {

namespace {

void find_slowest(const std::vector<SynchronizationStatistics>& ranks, double seconds,
                  SynchronizationSummary& summary) {
  if (ranks.size() < 2) return;
  const auto least = std::ranges::min_element(ranks, {}, &SynchronizationStatistics::seconds_waiting);
  double others = 0;
  for (auto rank = ranks.begin(); rank != ranks.end(); ++rank) {
    if (rank != least) others += rank->seconds_waiting;
  }
  const double longer = others / static_cast<double>(ranks.size() - 1) - least->seconds_waiting;
  if (longer <= kMeaningfulShare * seconds) return;
  summary.slowest_rank = static_cast<int>(least - ranks.begin());
  summary.seconds_waiting_for_slowest = longer;
}

}  // namespace

SynchronizationSummary summary_of(const std::vector<SynchronizationStatistics>& ranks, double seconds) {
  SynchronizationSummary summary{.rounds = ranks.front().rounds,
                                 .bucket_bytes_per_s = std::vector<double>(ranks.front().buckets.size(), 0)};
  SynchronizationStatistics sum;
  double longest = 0;
  for (const auto& rank : ranks) {
    sum.seconds_waiting += rank.seconds_waiting;
    sum.seconds_reducing += rank.seconds_reducing;
    longest = std::max(longest, rank.seconds_waiting);
    for (std::size_t bucket = 0; bucket < std::min(rank.buckets.size(), summary.bucket_bytes_per_s.size()); ++bucket) {
      auto& speed = summary.bucket_bytes_per_s[bucket];
      speed = std::max(speed, rank.buckets[bucket].bytes_per_s());
    }
  }
  summary.overlap_share = sum.overlap_share();
  if (summary.rounds == 0) return summary;
  const auto rounds = static_cast<double>(summary.rounds);
  summary.ms_per_step = 1000 * seconds / rounds;
  summary.exposed_communication_ms_per_step = 1000 * longest / rounds;
  find_slowest(ranks, seconds, summary);
  return summary;
}

std::string to_text(const SynchronizationSummary& summary) {
  auto line = text(detail::decimal(summary.exposed_communication_ms_per_step, 1), " ms of the run's ",
                   detail::decimal(summary.ms_per_step, 1), " ms per step were exposed communication (",
                   detail::decimal(100 * summary.overlap_share, 0), "% overlapped)");
  if (summary.slowest_rank) {
    line += text("; rank ", *summary.slowest_rank, " is the slowest: the others waited ",
                 detail::decimal(summary.seconds_waiting_for_slowest, 1), " s for it");
  }
  return line;
}

}  // namespace libtrain::detail
