#include <libtrain/train/fastest_precision.hpp>

#include <algorithm>
#include <array>
#include <limits>

#include <ATen/Parallel.h>
#include <ATen/cpu/Utils.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sum.h>
#include <c10/core/GradMode.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/train/autocast.hpp>

namespace libtrain {

namespace {

constexpr int kRounds = 5;
constexpr double kLeastGain = 1.2;  // less is within the noise of a shared machine, and not worth the rounding
constexpr int kFewestRounds = 3;
constexpr double kClearGain = 2;  // not worth more rounds

// A convolution as in the middle of a ResNet, which takes a GPU much longer than its launch. Its values do not come
// from a generator, whose state belongs to the run.
class Probe {
 public:
  explicit Probe(c10::Device device)
      : device_(device),
        images_(values({device.is_cpu() ? std::max(2, at::get_num_threads()) : 256, 128, 28, 28}, device)),
        weights_(values({128, 128, 3, 3}, device)) {}

  /// Of the forward and the backward pass.
  double seconds_in(at::ScalarType type) {
    const Stopwatch stopwatch;
    at::Tensor output;
    {
      const Autocast autocast{device_, {.type = type}};
      output = at::conv2d(images_, weights_, {}, 1, 1);
    }
    output.backward(at::ones_like(output));
    // Copying a value waits for the device.
    (void)(weights_.grad().sum() + images_.grad().sum()).item<float>();
    return stopwatch.seconds();
  }

 private:
  static at::Tensor values(at::IntArrayRef sizes, c10::Device device) {
    return at::full(sizes, 0.5, device).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_(true);
  }

  c10::Device device_;
  at::Tensor images_;
  at::Tensor weights_;
};

bool has_bfloat16_instructions() {
  const auto capabilities = at::cpu::get_cpu_capabilities();
  return std::ranges::any_of(std::array{"avx512_bf16", "amx_bf16"}, [&](const char* name) {
    const auto found = capabilities.find(name);
    return found != capabilities.end() && found->second.isBool() && found->second.toBool();
  });
}

bool is_faster_in_bfloat16(c10::Device device) {
  if (device.is_cpu() && !has_bfloat16_instructions()) return false;
  const c10::AutoGradMode gradients(true);
  Probe probe(device);
  double best_float32 = std::numeric_limits<double>::max();
  double best_bfloat16 = best_float32;
  for (int round = 0; round <= kRounds; ++round) {
    const double float32 = probe.seconds_in(at::kFloat);
    const double bfloat16 = probe.seconds_in(at::kBFloat16);
    if (round == 0) continue;  // the first one chooses algorithms
    best_float32 = std::min(best_float32, float32);
    best_bfloat16 = std::min(best_bfloat16, bfloat16);
    if (round >= kFewestRounds && best_float32 > kClearGain * best_bfloat16) break;
  }
  return best_float32 > kLeastGain * best_bfloat16;
}

}  // namespace

Precision fastest_precision(Communicator& communicator, c10::Device device) {
  const auto all_are_faster = at::ones({1}, device).mul_(is_faster_in_bfloat16(device) ? 1 : 0);
  communicator.all_reduce(all_are_faster, ReduceOp::minimum).wait();
  return all_are_faster.item<float>() > 0 ? Precision::bfloat16 : Precision::float32;
}

}  // namespace libtrain
