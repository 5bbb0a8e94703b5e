#include <bench/synchronizer_overhead.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/single/single_communicator.hpp>
#include <libtrain/observe/detail/percentile.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>

namespace libtrain::bench {

namespace {

class ManyParameters : public torch::nn::Module {
 public:
  explicit ManyParameters(std::int64_t count) {
    for (std::int64_t index = 0; index < count; ++index) register_parameter(text("p", index), torch::zeros({1}));
  }
};

class Nothing : public Reduction {
 public:
  bool advance() override { return true; }
};

// Makes a group of one keep its gradients in buckets, as larger groups do.
class SendsNothing : public WireFormat {
 public:
  std::string name() const override { return "nothing"; }
  bool may_overflow() const override { return false; }
  void plan(const std::vector<BucketView>& /*buckets*/, Communicator& /*communicator*/) override {}
  std::unique_ptr<Reduction> start(const BucketView& /*bucket*/, Communicator& /*communicator*/) override {
    return std::make_unique<Nothing>();
  }
};

SynchronizerOptions options_of(const OverheadCase& measured) {
  const auto members = static_cast<std::size_t>((measured.parameters + measured.buckets - 1) / measured.buckets);
  const auto bytes = members * sizeof(float);
  SynchronizerOptions options{.buckets = {.bucket_bytes = bytes, .first_bucket_bytes = bytes}};
  if (measured.gradients != Gradients::unbucketed) options.wire_format = std::make_shared<SendsNothing>();
  return options;
}

void clear(const std::vector<at::Tensor>& parameters) {
  for (const auto& parameter : parameters) parameter.mutable_grad().reset();
}

double seconds_of(const std::function<void()>& step) {
  const Stopwatch stopwatch;
  step();
  return stopwatch.seconds();
}

}  // namespace

std::string_view to_string(Gradients gradients) {
  switch (gradients) {
    case Gradients::unbucketed:
      return "unbucketed";
    case Gradients::kept:
      return "kept";
    case Gradients::cleared:
      return "cleared";
  }
  return "";
}

Overhead measure_overhead(const OverheadCase& measured, std::int64_t iterations, std::int64_t warmup) {
  detail::SingleCommunicator communicator;
  const auto alone = std::make_shared<ManyParameters>(measured.parameters);
  const auto together = std::make_shared<ManyParameters>(measured.parameters);
  GradientSynchronizer synchronizer{*together, communicator, options_of(measured)};
  const auto alone_parameters = alone->parameters();
  const auto together_parameters = together->parameters();
  const std::vector<at::Tensor> ones(alone_parameters.size(), torch::ones({1}));
  const bool keeps = measured.gradients == Gradients::kept;

  const auto step_alone = [&] {
    if (!keeps) clear(alone_parameters);
    torch::autograd::backward(alone_parameters, ones);
  };
  const auto step_together = [&] {
    if (!keeps) synchronizer.zero_grad();
    torch::autograd::backward(together_parameters, ones);
    synchronizer.wait();
  };
  for (std::int64_t step = 0; step < warmup; ++step) {
    step_alone();
    step_together();
  }
  std::vector<double> local;
  std::vector<double> synchronized;
  for (std::int64_t step = 0; step < iterations; ++step) {
    // The second one finds other caches: each kind is second half of the time.
    if (step % 2 == 0) local.push_back(seconds_of(step_alone));
    synchronized.push_back(seconds_of(step_together));
    if (step % 2 != 0) local.push_back(seconds_of(step_alone));
  }
  return {.buckets = synchronizer.buckets().size(),
          .local_median_s = detail::percentile(local, 0.5),
          .local_minimum_s = detail::percentile(local, 0),
          .synchronized_median_s = detail::percentile(synchronized, 0.5),
          .synchronized_minimum_s = detail::percentile(synchronized, 0)};
}

}  // namespace libtrain::bench
