// What does synchronising cost? Times training steps on synthetic data, alternating between steps of each rank alone
// (all ranks at the same time) and synchronised steps:
//
//   mpirun -n 2 bench_train_step --workload resnet18
//
// A step is zero_grad, forward, backward and an SGD step with momentum. It is timed between two barriers, and counts
// with the time of the slowest rank. Minimum and median of --iterations times of each kind. On a GPU a time is the mean
// over --steps-at-once steps, after which the host waits for the device, once. With --fresh-starts, also the first ten
// steps of networks, optimizers and synchronizers made anew. With --profile, LibTorch's profile of ten more
// synchronised steps, in which each is a span "train_step".

#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/record_function.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <libtrain/libtrain.hpp>
#include <libtrain/observe/detail/percentile.hpp>
#include <libtrain/train/detail/peak_memory.hpp>

#include <bench/fresh_starts.hpp>
#include <bench/step_timing.hpp>
#include <bench/training_pair.hpp>

namespace lt = libtrain;
namespace bench = libtrain::bench;

namespace {

constexpr int kProfiledSteps = 10;

struct Result {
  bench::TrainingPairOptions options = {};
  bench::StepTimes times = {};
  std::int64_t parameters = 0;
  bool takes_images = false;
  double waiting_s = 0;  // a step, on rank 0
  std::int64_t peak_rss_bytes = 0;
  std::optional<std::int64_t> peak_device_bytes = {};  // on rank 0
  std::optional<bench::FreshStarts> fresh = {};
};

lt::Overlap overlap_of(const std::string& name) {
  if (name == "backward") return lt::Overlap::backward;
  if (name == "none") return lt::Overlap::none;
  throw lt::UsageError("--overlap is backward or none, not '" + name + "'.");
}

at::ScalarType precision_of(const std::string& name) {
  if (name == "float32") return at::kFloat;
  if (name == "bf16") return at::kBFloat16;
  if (name == "fp16") return at::kHalf;
  throw lt::UsageError("--precision is float32, bf16 or fp16, not '" + name + "'.");
}

at::MemoryFormat format_of(const std::string& channels_last) {
  if (channels_last == "no") return at::MemoryFormat::Contiguous;
  if (channels_last == "yes") return at::MemoryFormat::ChannelsLast;
  throw lt::UsageError("--channels-last is yes or no, not '" + channels_last + "'.");
}

bench::Sgd sgd_of(const std::string& name) {
  if (name == "torch") return bench::Sgd::torch;
  if (name == "fused") return bench::Sgd::fused;
  throw lt::UsageError("--sgd is torch or fused, not '" + name + "'.");
}

std::int64_t steps_at_once(const lt::Context& context) {
  const auto steps = context.integer("steps-at-once");
  return steps > 0 ? steps : context.device().is_cpu() ? 1 : 10;
}

bench::TrainingPairOptions options_of(const lt::Context& context) {
  const auto name = context.option("workload");
  const auto batch = context.integer("batch");
  return {.workload = name,
          .batch = batch > 0 ? batch : bench::default_batch(name),
          .image_size = context.integer("image-size", 1),
          .placement = {.device = context.device(), .format = format_of(context.option("channels-last"))},
          .precision = precision_of(context.option("precision")),
          .sgd = sgd_of(context.option("sgd")),
          .bucket_bytes = static_cast<std::size_t>(context.integer("bucket-bytes", 1)),
          .overlap = overlap_of(context.option("overlap")),
          .trace = context.trace()};
}

// Of tensors of this process, as torch.cuda.max_memory_allocated() counts them.
std::int64_t peak_bytes_of(c10::Device device) {
  const auto stats = at::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  return stats.allocated_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak;
}

// All ranks must call it; rank 0 writes its profile.
void profile_steps(bench::TrainingPair& pair, const std::string& path, bool writes) {
  namespace profiler = torch::autograd::profiler;
  const torch::profiler::impl::ProfilerConfig config{torch::profiler::impl::ProfilerState::KINETO};
  const std::set activities{torch::profiler::impl::ActivityType::CPU, torch::profiler::impl::ActivityType::CUDA};
  if (writes) {
    profiler::prepareProfiler(config, activities);
    profiler::enableProfiler(config, activities);
  }
  for (int step = 0; step < kProfiledSteps; ++step) {
    RECORD_USER_SCOPE("train_step");
    pair.step_together();
  }
  if (writes) profiler::disableProfiler()->save(path);
}

Result measure(lt::Context& context) {
  auto& communicator = context.communicator();
  Result result{.options = options_of(context)};
  const auto iterations = context.integer("iterations", 1);
  const auto starts = context.integer("fresh-starts");

  // Shapes do not change. The peers choose convolutions in this way as well.
  if (!context.device().is_cpu()) at::globalContext().setBenchmarkCuDNN(true);
  // Ranks train on different data, so that equal weights show that they did synchronise.
  torch::manual_seed(context.seed() + 1000 + static_cast<std::uint64_t>(context.rank()));
  {
    bench::TrainingPair pair{result.options, communicator};
    result.parameters = pair.parameters();
    result.takes_images = pair.takes_images();
    for (std::int64_t step = 0; step < context.integer("warmup"); ++step) {
      pair.step_alone();
      pair.step_together();
    }
    const double waited_before = pair.synchronizer().statistics().seconds_waiting;
    const auto at_once = steps_at_once(context);
    result.times = bench::time_steps(pair, communicator, iterations, at_once);
    const double waited = pair.synchronizer().statistics().seconds_waiting - waited_before;
    result.waiting_s = waited / static_cast<double>(iterations * at_once);
    if (const auto profile = context.option("profile"); !profile.empty())
      profile_steps(pair, profile, context.rank() == 0);
    pair.require_equal_weights();
    result.peak_rss_bytes = lt::detail::peak_rss_of_ranks(communicator);
    if (!context.device().is_cpu()) result.peak_device_bytes = peak_bytes_of(context.device());
  }
  if (starts > 0) result.fresh = bench::time_fresh_starts(result.options, communicator, starts);
  return result;
}

lt::Record record_of(lt::Context& context, const Result& result, bool synchronized) {
  const auto& seconds = synchronized ? result.times.synchronized_s : result.times.local_s;
  const double median_s = lt::detail::percentile(seconds, 0.5);
  lt::Record record{"train_step"};
  record.set("implementation", "libtrain")
      .set("workload", result.options.workload)
      .set("ranks", context.world_size())
      .set("synchronized", synchronized)
      .set("median_s", median_s)
      .set("min_s", lt::detail::percentile(seconds, 0))
      .set("peak_rss_bytes", result.peak_rss_bytes)
      .set("batch", result.options.batch);
  if (result.takes_images) {
    record.set("image_size", result.options.image_size);
  } else {
    record.set("image_size", nullptr);
  }
  record.set("parameters", result.parameters)
      .set("threads", at::get_num_threads())
      .set("iterations", seconds.size())
      .set("steps_at_once", steps_at_once(context))
      .set("samples_per_s", static_cast<double>(result.options.batch * context.world_size()) / median_s)
      .set("device", c10::DeviceTypeName(context.device().type(), /*lower_case=*/true))
      .set("precision", context.option("precision"))
      .set("channels_last", context.option("channels-last") == "yes")
      .set("sgd", context.option("sgd"))
      .set("backend", context.communicator().backend());
  if (result.peak_device_bytes) record.set("peak_device_bytes", *result.peak_device_bytes);
  if (synchronized) record.set("waiting_s", result.waiting_s);
  if (result.fresh) {
    const auto& first_steps = synchronized ? result.fresh->synchronized_s : result.fresh->local_s;
    record.set("first_step_s", first_steps[0])
        .set("second_step_s", first_steps[1])
        .set("tenth_step_s", first_steps.back());
    if (synchronized) record.set("bucket_allocation_s", result.fresh->allocation_s);
  }
  return record;
}

void print_steps(const Result& result) {
  const auto& [local, synchronized] = result.times;
  const double local_minimum = lt::detail::percentile(local, 0);
  const double local_median = lt::detail::percentile(local, 0.5);
  const double minimum = lt::detail::percentile(synchronized, 0);
  const double median = lt::detail::percentile(synchronized, 0.5);
  std::printf("%-14s %12s %12s\n", "step", "minimum ms", "median ms");
  std::printf("%-14s %12.2f %12.2f\n", "local", 1e3 * local_minimum, 1e3 * local_median);
  std::printf("%-14s %12.2f %12.2f\n", "synchronized", 1e3 * minimum, 1e3 * median);
  std::printf("%-14s %12.3f %12.3f   (median of the pairs' ratios: %.3f)\n", "ratio", minimum / local_minimum,
              median / local_median, result.times.median_ratio());
  std::printf("wait() took %.2f ms a step on rank 0\n", 1e3 * result.waiting_s);
}

void print_first_steps(const bench::FreshStarts& fresh) {
  std::printf("%-14s %12s %12s %12s %12s\n", "started anew", "first ms", "second ms", "tenth ms", "first/tenth");
  const auto print = [](const char* kind, const std::vector<double>& seconds) {
    std::printf("%-14s %12.2f %12.2f %12.2f %12.3f\n", kind, 1e3 * seconds[0], 1e3 * seconds[1], 1e3 * seconds.back(),
                seconds[0] / seconds.back());
  };
  print("local", fresh.local_s);
  print("synchronized", fresh.synchronized_s);
  std::printf(
      "synchronising makes the first step %.2f ms slower than the tenth; allocating its buckets takes %.2f ms\n",
      1e3 * fresh.extra_s(), 1e3 * fresh.allocation_s);
}

void run_bench(lt::Context& context) {
  const auto json = context.option("json");
  auto file = context.rank() == 0 && !json.empty() ? lt::MetricsWriter::to_file(json) : lt::MetricsWriter::disabled();
  const auto result = measure(context);
  if (context.rank() != 0) return;
  file.write(record_of(context, result, false));
  file.write(record_of(context, result, true));
  std::printf("%s, batch %ld a rank, %d ranks over %s, %s, %d threads each, %zu times of each kind\n",
              result.options.workload.c_str(), result.options.batch, context.world_size(),
              std::string{context.communicator().backend()}.c_str(), context.device().str().c_str(),
              at::get_num_threads(), result.times.local_s.size());
  print_steps(result);
  if (result.fresh) print_first_steps(*result.fresh);
}

}  // namespace

int main(int argc, char** argv) {
  return lt::run(argc, argv,
                 {.description = "Times training steps on synthetic data, each rank alone and all ranks synchronised.",
                  .options = {{"workload", bench::workload_names(), "resnet18"},
                              {"batch", "Samples per rank (0: 8 images or sentences, 2 of mask_rcnn, 64 vectors)", "0"},
                              {"image-size", "Height and width of the images", "64"},
                              {"precision", "float32, or forward in bf16 or fp16", "float32"},
                              {"channels-last", "yes: images and weights in that layout; or no", "no"},
                              {"sgd", "torch: LibTorch's; fused: libtrain's", "torch"},
                              {"iterations", "Times of each kind", "30"},
                              {"steps-at-once", "Steps of a time (0: 1 on the CPU, 10 on a GPU)", "0"},
                              {"warmup", "Steps of each kind before", "5"},
                              {"fresh-starts", "How often to start anew and time the first ten steps", "0"},
                              {"bucket-bytes", "Largest bucket of gradients", std::to_string(25 << 20)},
                              {"overlap", "backward: reduce while it runs; none: in wait()", "backward"},
                              {"profile", "File for rank 0's profile of ten synchronised steps", ""},
                              {"json", "File to append the records to", ""}}},
                 run_bench);
}
