#include <bench/timed_workload.hpp>

#include <sys/resource.h>
#include <sys/time.h>

#include <utility>

#include <libtrain/base/build_info.hpp>
#include <libtrain/base/clock.hpp>
#include <libtrain/observe/detail/percentile.hpp>

namespace libtrain::bench {

namespace {

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

double core_seconds_of_process() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

}  // namespace

TimedWorkload::TimedWorkload(const std::string& name, int threads, std::unique_ptr<LoaderWorkload> workload)
    : workload_(std::move(workload)), head_("loader") {
  head_.set("implementation", "libtrain").set("workload", name).set("threads", threads);
  workload_->warm_up(head_);
}

void TimedWorkload::run(LoaderRounds& rounds) {
  const double core_seconds = core_seconds_of_process();
  const Stopwatch stopwatch;
  rounds.pass = workload_->run();
  rounds.seconds.push_back(stopwatch.seconds());
  rounds.core_seconds.push_back(core_seconds_of_process() - core_seconds);
}

Record TimedWorkload::record_of(const LoaderRounds& rounds) const {
  const double median_s = detail::percentile(rounds.seconds, 0.5);
  const double median_core_s = detail::percentile(rounds.core_seconds, 0.5);
  const auto samples = static_cast<double>(rounds.pass.samples);
  const auto bytes = static_cast<double>(rounds.pass.bytes);
  Record record = head_;
  record.set("iterations", rounds.seconds.size())
      .set("samples", rounds.pass.samples)
      .set("bytes", rounds.pass.bytes)
      .set("median_s", median_s)
      .set("min_s", detail::percentile(rounds.seconds, 0))
      .set("median_core_s", median_core_s)
      .set("min_core_s", detail::percentile(rounds.core_seconds, 0))
      .set("samples_per_s", samples / median_s)
      .set("samples_per_core_s", samples / median_core_s)
      .set("bytes_per_s", bytes / median_s)
      .set("bytes_per_core_s", bytes / median_core_s)
      .set("git_revision", build_info().git_revision);
  return record;
}

}  // namespace libtrain::bench
