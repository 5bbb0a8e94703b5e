// How many images a second of a core become batches for Mask R-CNN, with their masks?
//
//   .deps/bin/python bench/make_coco_images.py FOLDER
//   bench_coco_loader --data FOLDER
//
// bench/peers/coco_loader.py does the same with torchvision and pycocotools; bench/compare_coco_loader.py runs both in
// turns. An untimed epoch comes first.

#include <cstdint>
#include <cstdio>
#include <string>

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>

#include <bench/coco_workload.hpp>
#include <bench/run_without_ranks.hpp>
#include <bench/timed_workload.hpp>
#include <libtrain/observe/detail/percentile.hpp>
#include <libtrain/observe/metrics.hpp>

namespace lt = libtrain;
namespace bench = libtrain::bench;

namespace {

struct Options {
  std::string folder;
  lt::data::ShorterSide sizes = {};
  int threads = 1;
  std::int64_t rounds = 15;
  std::string json;
};

void run_bench(const Options& options) {
  // Nothing here computes in tensors but checks that are not timed.
  at::set_num_threads(1);
  auto records = options.json.empty() ? lt::MetricsWriter::disabled() : lt::MetricsWriter::to_file(options.json);
  bench::TimedWorkload workload{"coco_images", options.threads,
                                bench::coco_images(options.folder, options.sizes, options.threads)};
  bench::LoaderRounds rounds;
  for (std::int64_t number = 0; number < options.rounds; ++number) workload.run(rounds);
  records.write(workload.record_of(rounds));

  const auto samples = static_cast<double>(rounds.pass.samples);
  std::printf("%.0f images, %d threads, %zu rounds\n", samples, options.threads, rounds.seconds.size());
  std::printf("%12s%12s%12s%12s\n", "images/s", "fastest", "per core s", "fastest");
  std::printf("%12.1f%12.1f%12.1f%12.1f\n", samples / lt::detail::percentile(rounds.seconds, 0.5),
              samples / lt::detail::percentile(rounds.seconds, 0),
              samples / lt::detail::percentile(rounds.core_seconds, 0.5),
              samples / lt::detail::percentile(rounds.core_seconds, 0));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Times reading images and masks of a COCO folder, per second and per second of CPU time."};
  Options options;
  app.add_option("--data", options.folder, "Folder with what bench/make_coco_images.py writes")->required();
  app.add_option("--min-size", options.sizes.min_size, "Pixels of the shorter side, less where the longer one ends it")
      ->capture_default_str();
  app.add_option("--max-size", options.sizes.max_size, "Pixels of the longer side, at most")->capture_default_str();
  app.add_option("--threads", options.threads, "That read and decode")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--rounds", options.rounds, "Timed epochs")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--json", options.json, "File to append the record to");
  return bench::run_without_ranks(app, argc, argv, [&] { run_bench(options); });
}
