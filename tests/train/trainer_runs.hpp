#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/sin.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <nlohmann/json.hpp>

#include <libtrain/data/dataset.hpp>
#include <libtrain/train/context.hpp>

#include <tests/support/device.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::test {

inline constexpr std::uint64_t kSamples = 113;  // no multiple of any number of ranks or batch size

/// About equally many steps with any number of ranks.
inline std::uint64_t batch_size(const Communicator& communicator) {
  return 16 / static_cast<std::uint64_t>(communicator.world_size());
}

/// Sample i has six values, and one of three classes.
class Waves : public data::Dataset {
 public:
  explicit Waves(std::uint64_t size = kSamples) : size_(size) {}
  std::uint64_t size() const override { return size_; }
  data::Sample get(std::uint64_t index, data::SampleRandom& /*random*/) const override {
    return {at::sin(at::arange(6, at::kFloat) * static_cast<double>(index + 1)).view({1, 2, 3}),
            static_cast<std::int64_t>(index % 3)};
  }

 private:
  std::uint64_t size_;
};

/// Ranks that are threads share LibTorch's generator: weights are a function of the seed instead.
inline void set_weights(torch::nn::Module& module, double seed) {
  const at::NoGradGuard no_grad;
  for (auto& parameter : module.parameters()) {
    parameter.copy_(at::sin(at::arange(parameter.numel(), at::kFloat) * seed).view(parameter.sizes()) / 3);
  }
}

inline torch::nn::Sequential small_model(double seed = 5) {
  torch::nn::Sequential model{torch::nn::Linear(6, 8), torch::nn::ReLU(), torch::nn::Linear(8, 3)};
  model->to(device());
  set_weights(*model, seed);
  return model;
}

/// A run's folder and its context, as `run` makes them; the same folder on all ranks.
class TestRun {
 public:
  explicit TestRun(Communicator& communicator) : communicator_(communicator) {
    if (communicator.rank() == 0) folder_.emplace();
    path_ = communicator.broadcast_bytes(folder_ ? folder_->path().string() : "", 0);
  }
  ~TestRun() { communicator_.barrier(); }

  // Another process of the same run.
  std::unique_ptr<Context> start(std::map<std::string, std::string> options = {}, std::string resume = "auto") {
    RunOptions run{.output = path_ + "/out", .seed = 3, .quiet = true, .resume = std::move(resume)};
    run.options = std::move(options);
    return std::make_unique<Context>(
        Connection{std::shared_ptr<Communicator>(std::shared_ptr<void>{}, &communicator_), device()}, run, Launch{},
        "run" + std::to_string(++starts_));
  }

  std::filesystem::path output() const { return std::filesystem::path{path_} / "out"; }
  std::filesystem::path checkpoints() const { return output() / "checkpoints"; }

  // The records of an event: step and value of `name`. Of a step that was made twice, the second one counts.
  std::map<std::int64_t, double> records(const std::string& event, const std::string& name) const {
    std::map<std::int64_t, double> values;
    std::ifstream file(output() / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const auto record = nlohmann::json::parse(line);
      if (record.at("event") == event && record.contains(name)) values[record.at("step")] = record.at(name);
    }
    return values;
  }

 private:
  Communicator& communicator_;
  std::optional<TemporaryFolder> folder_;
  std::string path_;
  int starts_ = 0;
};

}  // namespace libtrain::test
