// How long does it take to get the annotations of a COCO file into memory, and how much memory is that?
//
//   python3 bench/make_coco_file.py instances.json
//   bench_coco_annotations --file instances.json
//
// One untimed run comes first, so that the file is in the page cache. Without LibTorch, whose own memory would count.
// bench/peers/coco_annotations.py does the same with Python's json and pycocotools, and with --program takes turns with
// this one. The goal is a tenth of its time and half of its memory.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <bench/run_without_ranks.hpp>
#include <libtrain/base/build_info.hpp>
#include <libtrain/base/clock.hpp>
#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/coco.hpp>
#include <libtrain/observe/detail/percentile.hpp>
#include <libtrain/observe/metrics.hpp>
#include <libtrain/observe/record.hpp>

namespace lt = libtrain;
namespace data = libtrain::data;

namespace {

// Plain reads of a local file, as cheap as they come.
class LocalFile final : public data::File {
 public:
  explicit LocalFile(std::string path) : name_(std::move(path)), stream_(name_, std::ios::binary | std::ios::ate) {
    if (!stream_) throw lt::EnvironmentError(lt::text("File '", name_, "' cannot be read."));
    size_ = static_cast<std::uint64_t>(stream_.tellg());
  }

  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return size_; }

  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    stream_.seekg(static_cast<std::streamoff>(offset));
    stream_.read(reinterpret_cast<char*>(to.data()), static_cast<std::streamsize>(to.size()));
    if (!stream_) throw lt::EnvironmentError(lt::text("File '", name_, "', byte offset ", offset, ": cannot be read."));
  }

 private:
  std::string name_;
  mutable std::ifstream stream_;
  std::uint64_t size_ = 0;
};

struct Options {
  std::string file;
  std::int64_t iterations = 15;
  std::string json;
};

struct Measured {
  std::uint64_t bytes = 0;
  std::uint64_t annotations = 0;
  std::uint64_t coordinates = 0;
  std::vector<double> seconds;
};

Measured measure(const Options& options) {
  Measured measured;
  for (std::int64_t iteration = 0; iteration <= options.iterations; ++iteration) {
    const lt::Stopwatch stopwatch;
    const LocalFile file{options.file};
    const auto found = data::read_coco(file, {.use = data::CocoUse::evaluation});
    const double seconds = stopwatch.seconds();
    if (iteration > 0) measured.seconds.push_back(seconds);
    measured.bytes = file.size();
    measured.annotations = found.objects.annotations.size();
    measured.coordinates = found.objects.shapes.coordinates.size();
  }
  return measured;
}

lt::Record record_of(const Measured& measured) {
  const double median_s = lt::detail::percentile(measured.seconds, 0.5);
  const double samples_per_s = static_cast<double>(measured.annotations) / median_s;
  lt::Record record{"loader"};
  record.set("implementation", "libtrain")
      .set("workload", "coco_annotations")
      .set("threads", 1)
      .set("bytes", measured.bytes)
      .set("annotations", measured.annotations)
      .set("coordinates", measured.coordinates)
      .set("iterations", measured.seconds.size())
      .set("median_s", median_s)
      .set("min_s", lt::detail::percentile(measured.seconds, 0))
      .set("samples_per_s", samples_per_s)
      .set("samples_per_core_s", samples_per_s)
      .set("peak_rss_bytes", lt::detail::peak_rss_bytes())
      .set("git_revision", lt::build_info().git_revision);
  return record;
}

void run_bench(const Options& options) {
  const Measured measured = measure(options);
  auto records = options.json.empty() ? lt::MetricsWriter::disabled() : lt::MetricsWriter::to_file(options.json);
  records.write(record_of(measured));

  const double median_s = lt::detail::percentile(measured.seconds, 0.5);
  std::printf("%s: %llu bytes, %llu annotations, %llu coordinates\n", options.file.c_str(),
              static_cast<unsigned long long>(measured.bytes), static_cast<unsigned long long>(measured.annotations),
              static_cast<unsigned long long>(measured.coordinates));
  std::printf("%12s%12s%10s%10s\n", "minimum ms", "median ms", "MB/s", "peak MB");
  std::printf("%12.1f%12.1f%10.0f%10.0f\n", 1e3 * lt::detail::percentile(measured.seconds, 0), 1e3 * median_s,
              static_cast<double>(measured.bytes) / median_s / 1e6,
              static_cast<double>(lt::detail::peak_rss_bytes()) / 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Times reading a COCO annotation file into memory, on one thread."};
  Options options;
  app.add_option("--file", options.file, "The annotations, such as bench/make_coco_file.py writes")->required();
  app.add_option("--iterations", options.iterations, "Timed runs")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--json", options.json, "File to append the record to");
  return lt::bench::run_without_ranks(app, argc, argv, [&] { run_bench(options); });
}
