// How long does it take to turn lines of text into ids, in one thread?
//
//   .deps/bin/python bench/make_texts.py FOLDER
//   bench_tokenizer --data FOLDER
//
// bench/peers/tokenizer.py does the same with Hugging Face's tokenizers; bench/compare_tokenizer.py runs both in turns.
// What is done with the ids afterwards is not timed.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <bench/run_without_ranks.hpp>
#include <libtrain/base/build_info.hpp>
#include <libtrain/base/clock.hpp>
#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/observe/detail/percentile.hpp>
#include <libtrain/observe/metrics.hpp>
#include <libtrain/observe/record.hpp>
#include <libtrain/text/tokenizer.hpp>

namespace lt = libtrain;

namespace {

constexpr std::size_t kLinesAtOnce = 1000;

struct Options {
  std::string folder;
  std::int64_t iterations = 15;
  std::string json;
};

struct Kind {
  const char* name = nullptr;
  bool offsets = false;
  std::vector<double> seconds = {};
  std::uint64_t tokens = 0;
  std::int64_t sum = 0;  // of all ids
};

struct Lines {
  std::vector<std::string> lines = {};
  std::size_t bytes = 0;
};

Lines read_lines(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw lt::EnvironmentError(lt::text("There is no '", path, "'. Run bench/make_texts.py."));
  Lines texts;
  for (std::string line; std::getline(file, line); texts.lines.push_back(line)) texts.bytes += line.size() + 1;
  return texts;
}

void measure(const lt::Tokenizer& tokenizer, const std::vector<std::string>& lines, Kind& kind) {
  double seconds = 0;
  kind.tokens = 0;
  kind.sum = 0;
  for (std::size_t begin = 0; begin < lines.size(); begin += kLinesAtOnce) {
    const std::size_t end = std::min(begin + kLinesAtOnce, lines.size());
    const lt::Stopwatch stopwatch;
    std::vector<lt::Encoding> encodings;
    encodings.reserve(end - begin);
    for (std::size_t i = begin; i < end; ++i) {
      encodings.push_back(tokenizer.encode(lines[i], {.offsets = kind.offsets}));
    }
    seconds += stopwatch.seconds();
    for (const auto& encoding : encodings) {
      kind.tokens += encoding.ids.size();
      for (const auto id : encoding.ids) kind.sum += id;
    }
  }
  kind.seconds.push_back(seconds);
}

lt::Record record_of(const Kind& kind, const Lines& texts, double load_s) {
  lt::Record record{"tokenizer"};
  record.set("implementation", "libtrain")
      .set("kind", kind.name)
      .set("threads", 1)
      .set("texts", texts.lines.size())
      .set("bytes", texts.bytes)
      .set("tokens", kind.tokens)
      .set("sum", kind.sum)
      .set("iterations", kind.seconds.size())
      .set("median_s", lt::detail::percentile(kind.seconds, 0.5))
      .set("min_s", lt::detail::percentile(kind.seconds, 0))
      .set("load_s", load_s)
      .set("peak_rss_bytes", lt::detail::peak_rss_bytes())
      .set("git_revision", lt::build_info().git_revision);
  return record;
}

void run_bench(const Options& options) {
  auto records = options.json.empty() ? lt::MetricsWriter::disabled() : lt::MetricsWriter::to_file(options.json);
  const lt::Stopwatch loading;
  const lt::Tokenizer tokenizer = lt::read_tokenizer(options.folder + "/tokenizer.json");
  const double load_s = loading.seconds();
  const Lines texts = read_lines(options.folder + "/texts.txt");
  std::array<Kind, 2> kinds{{{.name = "ids"}, {.name = "offsets", .offsets = true}}};
  for (auto& kind : kinds) {
    for (std::int64_t iteration = 0; iteration < options.iterations; ++iteration) {
      measure(tokenizer, texts.lines, kind);
    }
    records.write(record_of(kind, texts, load_s));
    std::printf("%-10s%10.2f MB/s, %llu tokens\n", kind.name,
                1e-6 * static_cast<double>(texts.bytes) / lt::detail::percentile(kind.seconds, 0.5),
                static_cast<unsigned long long>(kind.tokens));
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Times turning lines of text into ids, in one thread."};
  Options options;
  app.add_option("--data", options.folder, "Folder with what bench/make_texts.py writes")->required();
  app.add_option("--iterations", options.iterations, "Timed runs")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--json", options.json, "File to append the records to");
  return lt::bench::run_without_ranks(app, argc, argv, [&] { run_bench(options); });
}
