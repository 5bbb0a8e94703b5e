// What does synchronising cost? Times training steps on synthetic data, alternating between steps of each rank alone
// (all ranks at the same time) and synchronised steps:
//
//   mpirun -n 2 bench_train_step --workload resnet18
//
// A step is zero_grad, forward, backward and an SGD step with momentum. It is timed between two barriers, and counts
// with the time of the slowest rank. Minimum and median of --iterations steps of each kind.

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <libtrain/libtrain.hpp>
#include <libtrain/observe/percentile.hpp>
#include <libtrain/train/peak_memory.hpp>

#include <bench/workloads.hpp>

namespace lt = libtrain;

namespace {

// The seconds of the slowest rank.
double timed(lt::Communicator& communicator, const std::function<void()>& step) {
  communicator.barrier();
  const lt::Stopwatch stopwatch;
  step();
  const auto seconds = torch::full({1}, stopwatch.seconds(), torch::kDouble);
  communicator.barrier();
  communicator.all_reduce(seconds, lt::ReduceOp::maximum).wait();
  return seconds.item<double>();
}

struct Timings {
  std::vector<double> seconds;

  double minimum() const { return *std::min_element(seconds.begin(), seconds.end()); }
  double median() const { return lt::percentile(seconds, 0.5); }
};

// Weights must be the same on all ranks, or the times mean nothing.
void require_equal_weights(torch::nn::Module& module, lt::Communicator& communicator) {
  double sum = 0;
  for (const auto& parameter : module.parameters())
    sum += parameter.detach().to(torch::kDouble).abs().sum().item<double>();
  const auto largest = torch::full({1}, sum, torch::kDouble);
  const auto smallest = largest.clone();
  communicator.all_reduce(largest, lt::ReduceOp::maximum).wait();
  communicator.all_reduce(smallest, lt::ReduceOp::minimum).wait();
  if (!torch::equal(largest, smallest)) throw std::runtime_error("The ranks' weights differ after synchronised steps.");
}

lt::Record record_of(lt::Context& context, const Timings& timings, bool synchronized, std::int64_t batch,
                     std::int64_t peak) {
  lt::Record record{"train_step"};
  record.set("implementation", "libtrain")
      .set("workload", context.option("workload"))
      .set("ranks", context.world_size())
      .set("synchronized", synchronized)
      .set("median_s", timings.median())
      .set("min_s", timings.minimum())
      .set("peak_rss_bytes", peak)
      .set("batch", batch)
      .set("image_size", context.integer("image-size"))
      .set("threads", at::get_num_threads())
      .set("iterations", timings.seconds.size())
      .set("backend", context.communicator().backend());
  return record;
}

void bench(lt::Context& context) {
  const auto name = context.option("workload");
  const auto batch = context.integer("batch") > 0 ? context.integer("batch") : lt::bench::default_batch(name);
  const auto iterations = context.integer("iterations", 1);
  auto& communicator = context.communicator();

  // Ranks train on different data, so that equal weights show that they did synchronise.
  torch::manual_seed(context.seed() + 1000 + static_cast<std::uint64_t>(context.rank()));
  // Two models of the same kind: the hooks of a synchronised one would also run in local steps.
  const auto alone = lt::bench::make_workload(name, batch, context.integer("image-size", 1));
  const auto together = lt::bench::make_workload(name, batch, context.integer("image-size", 1));
  const auto sgd_options = torch::optim::SGDOptions(0.001).momentum(0.9);
  torch::optim::SGD sgd_alone{alone.module->parameters(), sgd_options};
  torch::optim::SGD sgd_together{together.module->parameters(), sgd_options};
  lt::GradientSynchronizer synchronizer{
      *together.module,
      communicator,
      {.buckets = {.bucket_bytes = static_cast<std::size_t>(context.integer("bucket-bytes", 1))}}};

  const auto local_step = [&] {
    sgd_alone.zero_grad();
    alone.loss().backward();
    sgd_alone.step();
  };
  const auto synchronized_step = [&] {
    synchronizer.zero_grad();
    together.loss().backward();
    synchronizer.wait();
    sgd_together.step();
  };

  for (std::int64_t step = 0; step < context.integer("warmup"); ++step) {
    local_step();
    synchronized_step();
  }
  Timings local;
  Timings synchronized;
  std::vector<double> ratios;
  const double waited_before = synchronizer.statistics().seconds_waiting;
  for (std::int64_t step = 0; step < iterations; ++step) {
    // Whoever comes second finds other caches: each kind is second half of the time.
    if (step % 2 == 0) local.seconds.push_back(timed(communicator, local_step));
    synchronized.seconds.push_back(timed(communicator, synchronized_step));
    if (step % 2 != 0) local.seconds.push_back(timed(communicator, local_step));
    ratios.push_back(synchronized.seconds.back() / local.seconds.back());
  }
  const double waited = (synchronizer.statistics().seconds_waiting - waited_before) / static_cast<double>(iterations);
  require_equal_weights(*together.module, communicator);
  const auto peak = lt::peak_rss_of_ranks(communicator);
  if (context.rank() != 0) return;

  const auto local_record = record_of(context, local, false, batch, peak);
  auto synchronized_record = record_of(context, synchronized, true, batch, peak);
  synchronized_record.set("waiting_s", waited);
  if (!context.option("json").empty()) {
    auto file = lt::MetricsWriter::to_file(context.option("json"));
    file.write(local_record);
    file.write(synchronized_record);
  }
  std::printf("%s, batch %ld a rank, %d ranks over %s, %d threads each, %ld steps of each kind\n", name.c_str(), batch,
              context.world_size(), std::string{communicator.backend()}.c_str(), at::get_num_threads(), iterations);
  std::printf("%-14s %12s %12s\n", "step", "minimum ms", "median ms");
  std::printf("%-14s %12.2f %12.2f\n", "local", 1e3 * local.minimum(), 1e3 * local.median());
  std::printf("%-14s %12.2f %12.2f\n", "synchronized", 1e3 * synchronized.minimum(), 1e3 * synchronized.median());
  std::printf("%-14s %12.3f %12.3f   (median of the pairs' ratios: %.3f)\n", "ratio",
              synchronized.minimum() / local.minimum(), synchronized.median() / local.median(),
              lt::percentile(ratios, 0.5));
  std::printf("wait() took %.2f ms a step on rank 0\n", 1e3 * waited);
}

}  // namespace

int main(int argc, char** argv) {
  return lt::run(argc, argv,
                 {.description = "Times training steps on synthetic data, each rank alone and all ranks synchronised.",
                  .options = {{"workload", "resnet18, resnet50 or mlp", "resnet18"},
                              {"batch", "Samples per rank (0: 8 images, 64 vectors for mlp)", "0"},
                              {"image-size", "Height and width of the images", "64"},
                              {"iterations", "Timed steps of each kind", "30"},
                              {"warmup", "Steps of each kind before", "5"},
                              {"bucket-bytes", "Largest bucket of gradients", std::to_string(25 << 20)},
                              {"json", "File to append the records to", ""}}},
                 bench);
}
