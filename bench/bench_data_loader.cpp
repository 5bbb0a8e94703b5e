// How many photographs a second of a core become batches, and how many bytes of shards are read?
//
//   .deps/bin/python bench/make_photographs.py DIR/photographs
//   bench_data_loader --data DIR
//
// Makes shards of the photographs first, where they are missing. bench/loader_workload.hpp says what the workloads do.
// After an untimed round of each they take turns, one round each, in the opposite order every other time. With --serve
// the program runs a round for each line "WORKLOAD THREADS" of the standard input and answers with its record, so that
// bench/compare_data_loader.py can take turns with PyTorch's loader (bench/peers/data_loader.py) as well.

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>

#include <bench/loader_data.hpp>
#include <bench/loader_workload.hpp>
#include <bench/run_without_ranks.hpp>
#include <bench/timed_workload.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/observe/detail/percentile.hpp>
#include <libtrain/observe/metrics.hpp>

namespace lt = libtrain;
namespace bench = libtrain::bench;

namespace {

struct Options {
  std::string data = {};
  std::vector<std::string> workloads = bench::loader_workload_names();
  int threads = 1;
  int rounds = 15;
  bool serve = false;
  std::string json = {};
};

double seconds_since_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

bench::TimedWorkload timed_workload(const std::string& name, int threads, const bench::LoaderData& files) {
  return {name, threads, bench::make_loader_workload(name, threads, files)};
}

void serve(const bench::LoaderData& files) {
  std::map<std::pair<std::string, int>, bench::TimedWorkload> workloads;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string name;
    int threads = 0;
    if (!(words >> name >> threads) || threads < 1) {
      throw lt::UsageError(lt::text("Expected a workload and a number of threads, found '", line, "'."));
    }
    const std::pair key{name, threads};
    auto found = workloads.find(key);
    if (found == workloads.end()) {
      found = workloads.emplace(key, timed_workload(name, threads, files)).first;
    }
    bench::LoaderRounds rounds;
    found->second.run(rounds);
    std::cout << found->second.record_of(rounds).line(seconds_since_epoch()) << std::flush;
  }
}

void print_row(const std::string& name, const bench::LoaderRounds& rounds) {
  const auto samples = static_cast<double>(rounds.pass.samples);
  const auto bytes = static_cast<double>(rounds.pass.bytes);
  const double median_core_s = lt::detail::percentile(rounds.core_seconds, 0.5);
  std::printf("%-24s%12.0f%12.0f%12.0f%12.0f%14.1f\n", name.c_str(),
              samples / lt::detail::percentile(rounds.seconds, 0.5),
              samples / lt::detail::percentile(rounds.seconds, 0), samples / median_core_s,
              samples / lt::detail::percentile(rounds.core_seconds, 0), bytes / median_core_s / 1e6);
}

void measure(const Options& options, const bench::LoaderData& files) {
  std::vector<bench::TimedWorkload> workloads;
  for (const std::string& name : options.workloads) workloads.push_back(timed_workload(name, options.threads, files));
  std::vector<bench::LoaderRounds> rounds(workloads.size());
  for (int number = 0; number < options.rounds; ++number) {
    for (std::size_t turn = 0; turn < workloads.size(); ++turn) {
      const std::size_t which = number % 2 == 0 ? turn : workloads.size() - 1 - turn;
      workloads[which].run(rounds[which]);
    }
  }

  auto records = options.json.empty() ? lt::MetricsWriter::disabled() : lt::MetricsWriter::to_file(options.json);
  std::printf("%llu photographs, %d threads, %d rounds\n", static_cast<unsigned long long>(files.images),
              options.threads, options.rounds);
  std::printf("%-24s%12s%12s%12s%12s%14s\n", "", "samples/s", "fastest", "per core s", "fastest", "MB/core s");
  for (std::size_t which = 0; which < workloads.size(); ++which) {
    records.write(workloads[which].record_of(rounds[which]));
    print_row(options.workloads[which], rounds[which]);
  }
}

void run_bench(const Options& options) {
  // Nothing here computes in tensors but checks that are not timed.
  at::set_num_threads(1);
  const auto files = bench::prepare_loader_data(options.data);
  if (options.serve) {
    serve(files);
  } else {
    measure(options, files);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Times a data loader on photographs, and reading shards, per second and per second of CPU time."};
  Options options;
  app.add_option("--data", options.data, "Folder with photographs/, such as bench/make_photographs.py writes")
      ->required();
  app.add_option("--workload", options.workloads, "What to do, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember(bench::loader_workload_names()))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "That read and decode")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--rounds", options.rounds, "Timed ones of each workload")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_flag("--serve", options.serve, "Run a round for each line \"WORKLOAD THREADS\" of the standard input");
  app.add_option("--json", options.json, "File to append the records to");
  return bench::run_without_ranks(app, argc, argv, [&] { run_bench(options); });
}
