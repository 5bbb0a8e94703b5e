// What does the synchronizer itself cost? Times steps of one process in which backward() does next to nothing and
// nothing is sent, with a synchronizer and without; the difference is bookkeeping:
//
//   bench_synchronizer --parameters 64,256,1024 --buckets 1,4,16,64
//
// The goal is at most 10 microseconds a bucket and 1 a parameter. The last lines say what one bucket and one parameter
// take by least squares over all cases.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/base/environment.hpp>
#include <libtrain/libtrain.hpp>

#include <bench/overhead_fit.hpp>
#include <bench/synchronizer_overhead.hpp>

namespace lt = libtrain;
namespace bench = libtrain::bench;

namespace {

constexpr double kGoalPerBucket = 10e-6;
constexpr double kGoalPerParameter = 1e-6;
constexpr std::int64_t kMax = 1 << 20;
constexpr std::array kKinds{bench::Gradients::unbucketed, bench::Gradients::kept, bench::Gradients::cleared};

std::vector<std::int64_t> counts_of(const lt::Context& context, std::string_view option) {
  const auto list = context.option(option);
  std::vector<std::int64_t> counts;
  for (std::size_t begin = 0; begin <= list.size();) {
    const auto end = std::min(list.find(',', begin), list.size());
    const auto count = lt::parse_integer(std::string_view{list}.substr(begin, end - begin), 1, kMax);
    if (!count) {
      throw lt::UsageError(lt::text("Option --", option, " is '", list, "', which is not a list of numbers from 1 to ",
                                    kMax, " with commas between."));
    }
    counts.push_back(*count);
    begin = end + 1;
  }
  return counts;
}

double goal_s(const bench::OverheadCase& measured, const bench::Overhead& overhead) {
  return kGoalPerBucket * static_cast<double>(overhead.buckets) +
         kGoalPerParameter * static_cast<double>(measured.parameters);
}

lt::Record record_of(const bench::OverheadCase& measured, const bench::Overhead& overhead, std::int64_t iterations) {
  lt::Record record{"synchronizer_overhead"};
  record.set("implementation", "libtrain")
      .set("gradients", bench::to_string(measured.gradients))
      .set("parameters", measured.parameters)
      .set("buckets", overhead.buckets)
      .set("median_s", overhead.median_s())
      .set("min_s", overhead.minimum_s())
      .set("goal_s", goal_s(measured, overhead))
      .set("local_median_s", overhead.local_median_s)
      .set("synchronized_median_s", overhead.synchronized_median_s)
      .set("iterations", iterations)
      .set("git_revision", lt::build_info().git_revision);
  return record;
}

lt::Record record_of(bench::Gradients gradients, const bench::OverheadFit& fit) {
  lt::Record record{"synchronizer_overhead_fit"};
  record.set("implementation", "libtrain")
      .set("gradients", bench::to_string(gradients))
      .set("fixed_s", fit.fixed_s)
      .set("per_bucket_s", fit.per_bucket_s)
      .set("per_parameter_s", fit.per_parameter_s)
      .set("worst_error", fit.worst_error);
  return record;
}

void print_row(const bench::OverheadCase& measured, const bench::Overhead& overhead) {
  const double goal = goal_s(measured, overhead);
  std::printf("%-11s %10ld %8zu %10.1f %14.1f %14.1f %10.1f %9.0f%%\n",
              std::string{bench::to_string(measured.gradients)}.c_str(), measured.parameters, overhead.buckets,
              1e6 * overhead.local_median_s, 1e6 * overhead.minimum_s(), 1e6 * overhead.median_s(), 1e6 * goal,
              100 * overhead.median_s() / goal);
  std::fflush(stdout);
}

void print_fit(bench::Gradients gradients, const bench::OverheadFit& fit) {
  std::printf("%-11s %.2f us, %.2f us a bucket, %.3f us a parameter (medians; off by up to %.0f%%)\n",
              std::string{bench::to_string(gradients)}.c_str(), 1e6 * fit.fixed_s, 1e6 * fit.per_bucket_s,
              1e6 * fit.per_parameter_s, 100 * fit.worst_error);
}

void run_bench(lt::Context& context) {
  if (context.world_size() > 1) {
    throw lt::UsageError("bench_synchronizer measures one process: start it without mpirun.",
                         lt::ErrorScope::all_ranks);
  }
  const auto parameters = counts_of(context, "parameters");
  const auto buckets = counts_of(context, "buckets");
  if (std::ranges::min(buckets) > std::ranges::max(parameters)) {
    throw lt::UsageError("No number of --parameters is enough for any of --buckets: each bucket holds one at least.");
  }
  const auto iterations = context.integer("iterations", 1);
  const auto warmup = context.integer("warmup");
  auto file = context.option("json").empty() ? lt::MetricsWriter::disabled()
                                             : lt::MetricsWriter::to_file(context.option("json"));

  std::printf("%-11s %10s %8s %10s %14s %14s %10s %10s\n", "gradients", "parameters", "buckets", "local us",
              "overhead: min", "median", "goal us", "of goal");
  std::vector<std::optional<bench::OverheadFit>> fits;
  for (const auto gradients : kKinds) {
    std::vector<bench::OverheadPoint> points;
    for (const auto parameter_count : parameters) {
      for (const auto bucket_count : buckets) {
        if (bucket_count > parameter_count) continue;
        const bench::OverheadCase measured{
            .parameters = parameter_count, .buckets = bucket_count, .gradients = gradients};
        const auto overhead = bench::measure_overhead(measured, iterations, warmup);
        file.write(record_of(measured, overhead, iterations));
        print_row(measured, overhead);
        points.push_back({.parameters = parameter_count,
                          .buckets = static_cast<std::int64_t>(overhead.buckets),
                          .seconds = overhead.median_s()});
      }
    }
    fits.push_back(bench::fit_overhead(points));
    if (fits.back()) file.write(record_of(gradients, *fits.back()));
  }
  for (std::size_t kind = 0; kind < fits.size(); ++kind) {
    if (fits[kind]) print_fit(kKinds[kind], *fits[kind]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return lt::run(argc, argv,
                 {.description = "Times the synchronizer's own bookkeeping, in one process that sends nothing.",
                  .options = {{"parameters", "Numbers of parameters, of one element each", "64,256,1024"},
                              {"buckets", "Numbers of buckets to divide them among", "1,4,16,64"},
                              {"iterations", "Timed steps of each kind", "300"},
                              {"warmup", "Steps of each kind before", "20"},
                              {"json", "File to append the records to", ""}}},
                 run_bench);
}
