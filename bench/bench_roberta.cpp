// How fast does RoBERTa train, beside transformers?
//
//   python3 bench/peers/roberta.py --make FOLDER
//   bench_roberta --data FOLDER --workload step
//
// A step is forward, backward and a step of AdamW, on the next batch of the folder: "step" has texts of equal length,
// "mixed" texts of different lengths, which are packed here and padded to the longest of a batch in the peer.
//
// bench/peers/roberta.py does the same in Python; bench/compare_roberta.py runs both in turns.

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include <torch/torch.h>
#include <CLI/CLI.hpp>

#include <bench/run_without_ranks.hpp>
#include <libtrain/base/build_info.hpp>
#include <libtrain/base/clock.hpp>
#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/checkpoint/weights.hpp>
#include <libtrain/models/roberta/roberta.hpp>
#include <libtrain/observe/detail/percentile.hpp>
#include <libtrain/observe/metrics.hpp>
#include <libtrain/observe/record.hpp>
#include <libtrain/optim/fused_adamw.hpp>
#include <libtrain/train/autocast.hpp>

namespace lt = libtrain;
namespace models = libtrain::models;

namespace {

struct Options {
  std::string folder;
  std::string workload = "step";
  std::string precision = "float32";
  bool recompute_layers = false;
  std::int64_t iterations = 15;
  std::string json;
};

struct Batch {
  models::PackedTexts texts;
  at::Tensor labels;
};

std::vector<Batch> batches_of(const Options& options) {
  const auto inputs = lt::read_tensors(options.folder + "/" + options.workload + ".safetensors");
  std::vector<Batch> batches;
  for (auto number = std::to_string(0); inputs.contains("ids." + number); number = std::to_string(batches.size())) {
    batches.push_back({models::unpadded_texts(inputs.at("ids." + number), inputs.at("mask." + number)),
                       inputs.at("labels." + number)});
  }
  if (batches.empty()) throw lt::EnvironmentError("There are no batches in " + options.folder + ". Make them again.");
  return batches;
}

struct Times {
  std::vector<double> seconds = {};
  double tokens = 0;  // of a step, mean
  std::int64_t parameters = 0;
};

// After as many steps that do not count as there are batches.
Times time_steps(const Options& options) {
  auto config = models::read_roberta_config(options.folder);
  config.options.recompute_layers = options.recompute_layers;
  models::RobertaForClassification model(config.options);
  lt::optim::FusedAdamW adamw{model->parameters(), torch::optim::AdamWOptions(1e-5).betas({0.9, 0.98}).eps(1e-6)};
  const auto batches = batches_of(options);
  const auto count = static_cast<std::int64_t>(batches.size());
  Times times;
  for (const auto& parameter : model->parameters()) times.parameters += parameter.numel();
  for (std::int64_t step = -count; step < options.iterations; ++step) {
    const auto& [texts, labels] = batches[static_cast<std::size_t>((step + count) % count)];
    const lt::Stopwatch stopwatch;
    adamw.zero_grad();
    at::Tensor loss;
    {
      const lt::Autocast autocast{c10::kCPU, {.type = options.precision == "bf16" ? at::kBFloat16 : at::kFloat}};
      loss = models::classification_loss(config.options.task, model->forward(texts), labels);
    }
    loss.backward();
    adamw.step();
    if (step < 0) continue;
    times.seconds.push_back(stopwatch.seconds());
    times.tokens += static_cast<double>(texts.ids.numel()) / static_cast<double>(options.iterations);
  }
  return times;
}

void run_bench(const Options& options) {
  auto records = options.json.empty() ? lt::MetricsWriter::disabled() : lt::MetricsWriter::to_file(options.json);
  torch::manual_seed(1);
  const auto times = time_steps(options);
  const double median_s = lt::detail::percentile(times.seconds, 0.5);
  const double min_s = lt::detail::percentile(times.seconds, 0);
  lt::Record record{"roberta"};
  record.set("implementation", "libtrain")
      .set("workload", options.workload)
      .set("precision", options.precision)
      .set("recompute_layers", options.recompute_layers)
      .set("parameters", times.parameters)
      .set("tokens", times.tokens)
      .set("threads", at::get_num_threads())
      .set("iterations", times.seconds.size())
      .set("median_s", median_s)
      .set("min_s", min_s)
      .set("peak_rss_bytes", lt::detail::peak_rss_bytes())
      .set("git_revision", lt::build_info().git_revision);
  records.write(record);
  std::printf("%s: minimum %.4f s, median %.4f s of %zu, %.0f tokens a step, peak %.0f MB\n", options.workload.c_str(),
              min_s, median_s, times.seconds.size(), times.tokens,
              static_cast<double>(lt::detail::peak_rss_bytes()) / 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Times training steps of RoBERTa on the CPU."};
  Options options;
  app.add_option("--data", options.folder, "Folder with what bench/peers/roberta.py --make writes")->required();
  app.add_option("--workload", options.workload)->capture_default_str()->check(CLI::IsMember({"step", "mixed"}));
  app.add_option("--precision", options.precision, "Of the forward pass")
      ->capture_default_str()
      ->check(CLI::IsMember({"float32", "bf16"}));
  app.add_flag("--recompute-layers", options.recompute_layers, "Keep only the inputs of layers for backward");
  app.add_option("--iterations", options.iterations, "Timed steps")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--json", options.json, "File to append the record to");
  return lt::bench::run_without_ranks(app, argc, argv, [&] { run_bench(options); });
}
