// How long does it take to evaluate detections by COCO's rules?
//
//   python3 bench/make_coco_detections.py FOLDER
//   bench_coco_evaluation --data FOLDER --threads 2
//
// bench/peers/coco_evaluation.py does the same with pycocotools; bench/compare_coco_evaluation.py runs both in turns.
// Each iteration reads the files, which is timed apart, and evaluates boxes and masks.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <bench/run_without_ranks.hpp>
#include <libtrain/base/build_info.hpp>
#include <libtrain/base/clock.hpp>
#include <libtrain/base/detail/machine.hpp>
#include <libtrain/data/coco_evaluation.hpp>
#include <libtrain/data/formats/coco.hpp>
#include <libtrain/data/storage/open_storage.hpp>
#include <libtrain/observe/detail/percentile.hpp>
#include <libtrain/observe/metrics.hpp>
#include <libtrain/observe/record.hpp>

namespace lt = libtrain;
namespace data = libtrain::data;

namespace {

struct Options {
  std::string folder;
  int threads = 2;
  std::int64_t iterations = 15;
  std::string json;
};

struct Kind {
  const char* name = nullptr;
  data::CocoIouType type = data::CocoIouType::boxes;
  std::vector<double> seconds = {};
  data::CocoStats stats = {};
};

struct Measured {
  std::size_t images = 0;
  std::size_t annotations = 0;
  std::size_t detections = 0;
  std::vector<double> read_seconds = {};
  std::array<Kind, 2> kinds{
      {{.name = "bbox", .type = data::CocoIouType::boxes}, {.name = "segm", .type = data::CocoIouType::masks}}};
};

Measured measure(const Options& options) {
  Measured measured;
  const data::CocoOptions reading{.use = data::CocoUse::evaluation};
  for (std::int64_t iteration = 0; iteration < options.iterations; ++iteration) {
    const lt::Stopwatch reading_time;
    const auto truth = data::read_coco(*data::open_file(options.folder + "/instances.json"), reading);
    const auto detections = data::read_coco_results(*data::open_file(options.folder + "/results.json"), truth, reading);
    measured.read_seconds.push_back(reading_time.seconds());
    measured.images = truth.images.size();
    measured.annotations = truth.objects.annotations.size();
    measured.detections = detections.annotations.size();
    for (auto& kind : measured.kinds) {
      const lt::Stopwatch stopwatch;
      kind.stats = data::evaluate_coco(truth, detections, {.type = kind.type, .threads = options.threads}).stats;
      kind.seconds.push_back(stopwatch.seconds());
    }
  }
  return measured;
}

lt::Record record_of(const Kind& kind, const Measured& measured, int threads) {
  lt::Record record{"coco_evaluation"};
  record.set("implementation", "libtrain")
      .set("type", kind.name)
      .set("threads", threads)
      .set("images", measured.images)
      .set("annotations", measured.annotations)
      .set("detections", measured.detections)
      .set("iterations", kind.seconds.size())
      .set("median_s", lt::detail::percentile(kind.seconds, 0.5))
      .set("min_s", lt::detail::percentile(kind.seconds, 0))
      .set("read_s", lt::detail::percentile(measured.read_seconds, 0.5))
      .set("stats", std::vector<double>(kind.stats.begin(), kind.stats.end()))
      .set("peak_rss_bytes", lt::detail::peak_rss_bytes())
      .set("git_revision", lt::build_info().git_revision);
  return record;
}

void run_bench(const Options& options) {
  auto records = options.json.empty() ? lt::MetricsWriter::disabled() : lt::MetricsWriter::to_file(options.json);
  const Measured measured = measure(options);
  for (const auto& kind : measured.kinds) records.write(record_of(kind, measured, options.threads));

  std::printf("%zu images, %zu annotations, %zu detections, %d threads\n", measured.images, measured.annotations,
              measured.detections, options.threads);
  std::printf("%-10s%12s%12s%10s\n", "", "minimum ms", "median ms", "AP");
  const auto print = [](const char* name, const std::vector<double>& seconds) {
    std::printf("%-10s%12.1f%12.1f", name, 1e3 * lt::detail::percentile(seconds, 0),
                1e3 * lt::detail::percentile(seconds, 0.5));
  };
  print("reading", measured.read_seconds);
  std::printf("\n");
  for (const auto& kind : measured.kinds) {
    print(kind.name, kind.seconds);
    std::printf("%10.4f\n", kind.stats[0]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Times the evaluation of detections by COCO's rules."};
  Options options;
  app.add_option("--data", options.folder, "Folder with what bench/make_coco_detections.py writes")->required();
  app.add_option("--threads", options.threads)->capture_default_str()->check(CLI::Range(1, 1024));
  app.add_option("--iterations", options.iterations, "Timed runs")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--json", options.json, "File to append the records to");
  return lt::bench::run_without_ranks(app, argc, argv, [&] { run_bench(options); });
}
