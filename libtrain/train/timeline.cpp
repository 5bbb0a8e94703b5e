#include <libtrain/train/timeline.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/agreement.hpp>
#include <libtrain/observe/detail/chrome_trace.hpp>

namespace libtrain {

namespace {

struct BarrierTimes {
  std::int64_t before_ns = 0;
  std::int64_t after_ns = 0;
};

// The first barriers wait for late ranks; among many, some run without disturbance.
using Barriers = std::array<BarrierTimes, 20>;

std::int64_t length_of(const BarrierTimes& times) {
  return times.after_ns - times.before_ns;
}

// Returns rank 0's times on all ranks.
Barriers broadcast_times(const Barriers& mine, Communicator& communicator) {
  std::string bytes(sizeof(Barriers), '\0');
  std::memcpy(bytes.data(), mine.data(), bytes.size());
  const auto received = communicator.broadcast_bytes(bytes, 0);
  Barriers result;
  std::memcpy(result.data(), received.data(), sizeof(Barriers));
  return result;
}

}  // namespace

Timeline::Timeline(Communicator& communicator, TimelineOptions options)
    : communicator_(communicator),
      options_(std::move(options)),
      buffer_(options_.limits),
      first_(measure_clock_offset()),
      uncertainty_ns_(first_.uncertainty_ns) {}

Timeline::ClockOffset Timeline::measure_clock_offset() {
  const auto now_ns = [this] {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(options_.now().time_since_epoch()).count();
  };
  Barriers mine;
  for (auto& times : mine) {
    times.before_ns = now_ns();
    communicator_.barrier();
    times.after_ns = now_ns();
  }
  const auto of_rank_0 = broadcast_times(mine, communicator_);
  ClockOffset result{.at_ns = mine.front().before_ns, .begin_ns = of_rank_0.front().before_ns};
  if (communicator_.rank() == 0) return result;
  std::size_t best = 0;
  const auto length = [&](std::size_t index) { return length_of(mine[index]) + length_of(of_rank_0[index]); };
  for (std::size_t index = 1; index < mine.size(); ++index) {
    if (length(index) < length(best)) best = index;
  }
  // No rank leaves a barrier before all have arrived; on rank 0's clock:
  // mine.before + offset <= of_rank_0.after, and of_rank_0.before <= mine.after + offset.
  const auto least = of_rank_0[best].before_ns - mine[best].after_ns;
  result.at_ns = mine[best].before_ns + length_of(mine[best]) / 2;
  result.offset_ns = least + length(best) / 2;
  result.uncertainty_ns = (length(best) + 1) / 2;
  return result;
}

Trace Timeline::trace_until(const ClockOffset& last) const {
  auto trace = buffer_.trace();
  trace.process = text("rank ", communicator_.rank(), " (", detail::host_name(), ")");
  const auto uncertainty_ns = std::max(first_.uncertainty_ns, last.uncertainty_ns);
  if (uncertainty_ns > 0) trace.note = text("clock within ", static_cast<double>(uncertainty_ns) / 1000, " us");
  const auto length = static_cast<double>(last.at_ns - first_.at_ns);
  const auto change = static_cast<double>(last.offset_ns - first_.offset_ns);
  const auto on_common_clock = [&](std::int64_t time_ns) -> std::int64_t {
    const double share = length > 0 ? std::clamp(static_cast<double>(time_ns - first_.at_ns) / length, 0.0, 1.0) : 0.0;
    return time_ns + first_.offset_ns + std::llround(share * change) - first_.begin_ns;
  };
  for (auto& span : trace.spans) {
    span.begin_ns = on_common_clock(span.begin_ns);
    // A small correction of the clock must not make a short span end before it begins.
    span.end_ns = std::max<std::int64_t>(span.begin_ns, on_common_clock(span.end_ns));
  }
  return trace;
}

void Timeline::require_writable(const std::filesystem::path& file) {
  detail::run_together(communicator_, "Opening the timeline", [&] {
    if (communicator_.rank() == 0) detail::ChromeTraceFile::require_writable(file);
  });
}

void Timeline::write(const std::filesystem::path& file) {
  const auto last = measure_clock_offset();
  uncertainty_ns_ = std::max(uncertainty_ns_, last.uncertainty_ns);
  const bool writes = communicator_.rank() == 0;
  std::optional<detail::ChromeTraceFile> output;
  // Thrown at the end: until then the other ranks continue to send their spans.
  std::exception_ptr failure;
  const auto on_rank_0 = [&](const auto& body) {
    if (writes && !failure) failure = detail::failure_of(body);
  };
  on_rank_0([&] {
    output.emplace(file);
    output->add(0, trace_until(last));
  });
  for (int rank = 1; rank < communicator_.world_size(); ++rank) {
    const bool mine = rank == communicator_.rank();
    const auto bytes = communicator_.broadcast_bytes(mine ? detail::encode(trace_until(last)) : std::string{}, rank);
    on_rank_0([&] { output->add(rank, detail::decode(bytes)); });
  }
  on_rank_0([&] { output->finish(); });
  detail::throw_together(communicator_, "Writing the timeline", failure);
}

void Timeline::write_local(const std::filesystem::path& file) const {
  detail::ChromeTraceFile output{file};
  output.add(communicator_.rank(), trace_until(first_));
  output.finish();
}

}  // namespace libtrain
