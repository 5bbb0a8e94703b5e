#include <libtrain/train/detail/checkpoint_parts.hpp>

#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/splitmix.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/detail/weights_file.hpp>
#include <libtrain/checkpoint/safetensors.hpp>
#include <libtrain/optim/optimizer_state.hpp>
#include <libtrain/sync/broadcast.hpp>

namespace libtrain::detail {

namespace {

using optim::NamedTensors;

class ModulePart final : public Checkpointable {
 public:
  explicit ModulePart(torch::nn::Module& module) : module_(module) {}

  NamedTensors tensors() override { return optim::named_tensors(module_); }

  void load(const NamedTensors& tensors) override {
    std::map<std::string, at::Tensor> given(tensors.begin(), tensors.end());
    const auto own = this->tensors();
    std::vector<at::Tensor> values;
    for (const auto& [name, tensor] : own) {
      const auto found = given.extract(name);
      if (found.empty()) throw UsageError(text("The checkpoint has no tensor '", name, "', and the module does."));
      const auto& saved = values.emplace_back(found.mapped());
      if (saved.sizes() == tensor.sizes() && saved.scalar_type() == tensor.scalar_type()) continue;
      throw UsageError(text("'", name, "' has shape ", saved.sizes(), " and dtype ", saved.scalar_type(),
                            " in the checkpoint, and ", tensor.sizes(), " and ", tensor.scalar_type(),
                            " in the module."));
    }
    if (!given.empty()) {
      throw UsageError(text("The checkpoint has a tensor '", given.begin()->first, "', and the module does not."));
    }
    const at::NoGradGuard no_grad;
    for (std::size_t index = 0; index < own.size(); ++index) own[index].second.copy_(values[index]);
  }

 private:
  torch::nn::Module& module_;
};

class OptimizerPart final : public Checkpointable {
 public:
  OptimizerPart(torch::optim::Optimizer& optimizer, const torch::nn::Module& module)
      : optimizer_(optimizer), module_(module) {
    tensors();  // throws now for an optimizer that cannot be saved
  }

  NamedTensors tensors() override { return optim::optimizer_state(optimizer_, module_); }
  void load(const NamedTensors& tensors) override { optim::load_optimizer_state(optimizer_, module_, tensors); }

 private:
  torch::optim::Optimizer& optimizer_;
  const torch::nn::Module& module_;
};

class ShardedPart final : public Checkpointable {
 public:
  explicit ShardedPart(ShardedOptimizer& optimizer) : optimizer_(optimizer) {}

  NamedTensors tensors() override { return optimizer_.state_dict(); }
  bool is_sharded() const override { return true; }
  NamedTensors shard() override { return optimizer_.shard_of_state_dict(); }
  void load(const NamedTensors& tensors) override { optimizer_.load_state_dict(tensors); }

 private:
  ShardedOptimizer& optimizer_;
};

class AveragePart final : public Checkpointable {
 public:
  explicit AveragePart(optim::MovingAverage& average) : average_(average) {}

  NamedTensors tensors() override {
    auto named = average_.named_tensors();
    named.emplace_back(kUpdates, at::scalar_tensor(average_.updates(), at::kLong));
    return named;
  }

  void load(const NamedTensors& tensors) override {
    auto values = tensors;
    std::int64_t updates = 0;
    std::erase_if(values, [&](const auto& named) {
      if (named.first != kUpdates) return false;
      updates = named.second.template item<std::int64_t>();
      return true;
    });
    average_.load(values, updates);
  }

 private:
  static constexpr const char* kUpdates = "::updates";  // no name of a module's tensor
  optim::MovingAverage& average_;
};

class ScalerPart final : public Checkpointable {
 public:
  explicit ScalerPart(optim::LossScaler& scaler) : scaler_(scaler) {}

  NamedTensors tensors() override {
    const auto state = scaler_.state();
    return {{"scale", at::scalar_tensor(state.scale, at::kDouble)},
            {"finite_steps", at::scalar_tensor(state.finite_steps, at::kLong)},
            {"overflows", at::scalar_tensor(state.overflows, at::kLong)}};
  }

  void load(const NamedTensors& tensors) override {
    optim::LossScalerState state;
    std::size_t found = 0;
    for (const auto& [name, tensor] : tensors) {
      if (name == "scale") state.scale = tensor.item<double>(), ++found;
      if (name == "finite_steps") state.finite_steps = tensor.item<std::int64_t>(), ++found;
      if (name == "overflows") state.overflows = tensor.item<std::int64_t>(), ++found;
    }
    if (found != 3) throw UsageError("The state of the loss scaler is not complete.");
    scaler_.load_state(state);
  }

 private:
  optim::LossScaler& scaler_;
};

std::vector<at::Generator> generators_of(const at::Device& device) {
  auto& context = at::globalContext();
  std::vector generators{context.defaultGenerator(at::kCPU)};
  if (!device.is_cpu()) generators.push_back(context.defaultGenerator(device));
  return generators;
}

std::string generator_name(int rank, std::size_t index) {
  return text("rank", rank, index == 0 ? ".cpu" : ".device");
}

at::Tensor state_of(at::Generator& generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

}  // namespace

std::unique_ptr<Checkpointable> part_of(torch::nn::Module& module) {
  return std::make_unique<ModulePart>(module);
}

std::unique_ptr<Checkpointable> part_of(torch::optim::Optimizer& optimizer, const torch::nn::Module& module) {
  return std::make_unique<OptimizerPart>(optimizer, module);
}

std::unique_ptr<Checkpointable> part_of(ShardedOptimizer& optimizer) {
  return std::make_unique<ShardedPart>(optimizer);
}

std::unique_ptr<Checkpointable> part_of(optim::MovingAverage& average) {
  return std::make_unique<AveragePart>(average);
}

std::unique_ptr<Checkpointable> part_of(optim::LossScaler& scaler) {
  return std::make_unique<ScalerPart>(scaler);
}

std::vector<at::Tensor> own_generators(const at::Device& device) {
  std::vector<at::Tensor> states;
  for (auto& generator : generators_of(device)) states.push_back(state_of(generator));
  return states;
}

void set_own_generators(const at::Device& device, const std::vector<at::Tensor>& states) {
  auto generators = generators_of(device);
  for (std::size_t index = 0; index < generators.size(); ++index) {
    const std::lock_guard lock(generators[index].mutex());
    generators[index].set_state(states.at(index));
  }
}

NamedTensors gather_generators(Communicator& communicator) {
  NamedTensors named;
  auto generators = generators_of(communicator.device());
  for (std::size_t index = 0; index < generators.size(); ++index) {
    const auto own = state_of(generators[index]).contiguous();
    const auto* const bytes = static_cast<const char*>(own.const_data_ptr());
    const auto all = communicator.all_gather_bytes(std::string{bytes, own.nbytes()});
    for (int rank = 0; rank < communicator.world_size(); ++rank) {
      const auto& state = all[static_cast<std::size_t>(rank)];
      auto tensor = at::empty({static_cast<std::int64_t>(state.size())}, at::kByte);
      std::memcpy(tensor.mutable_data_ptr(), state.data(), state.size());
      named.emplace_back(generator_name(rank, index), std::move(tensor));
    }
  }
  return named;
}

void restore_generators(const NamedTensors& saved, std::int64_t step, int saved_world_size,
                        Communicator& communicator) {
  const std::map<std::string, at::Tensor> states(saved.begin(), saved.end());
  const auto first = states.find(generator_name(0, 0));
  if (first == states.end()) throw UsageError("The checkpoint has no state of rank 0's generator of random numbers.");
  auto generators = generators_of(communicator.device());
  auto of_rank_0 = generators.front().clone();
  of_rank_0.set_state(first->second.cpu());
  const auto seed = combine_keys(combine_keys(of_rank_0.current_seed(), static_cast<std::uint64_t>(step)),
                                 static_cast<std::uint64_t>(communicator.rank()));
  for (std::size_t index = 0; index < generators.size(); ++index) {
    auto& generator = generators[index];
    const auto own = states.find(generator_name(communicator.rank(), index));
    const std::lock_guard lock(generator.mutex());
    if (saved_world_size == communicator.world_size() && own != states.end()) {
      generator.set_state(own->second.cpu());
    } else {
      generator.set_current_seed(seed);
    }
  }
}

NamedTensors copied_to_host(const NamedTensors& tensors) {
  const at::NoGradGuard no_grad;
  NamedTensors copies;
  copies.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    auto copy = at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()).device(at::kCPU));
    copy.copy_(tensor.detach());
    copies.emplace_back(name, std::move(copy));
  }
  return copies;
}

NamedTensors broadcast_named(NamedTensors tensors, Communicator& communicator) {
  const bool is_root = communicator.rank() == 0;
  std::string described;
  if (is_root) {
    for (const auto& [name, tensor] : tensors) {
      described += text(static_cast<int>(tensor.scalar_type()), ' ', tensor.dim());
      for (const auto size : tensor.sizes()) described += text(' ', size);
      described += text(' ', name.size(), ' ', name, '\n');
    }
  }
  InputText lines{communicator.broadcast_bytes(described, 0)};
  NamedTensors named;
  int type = 0;
  for (std::size_t index = 0; lines >> type; ++index) {
    std::int64_t dimensions = 0;
    lines >> dimensions;
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(dimensions));
    for (auto& size : sizes) lines >> size;
    std::size_t length = 0;
    lines >> length;
    std::string name(length, '\0');
    lines.ignore(1);
    lines.read(name.data(), static_cast<std::streamsize>(length));
    auto tensor = at::empty(sizes, at::TensorOptions(static_cast<at::ScalarType>(type)).device(communicator.device()));
    if (is_root) tensor.copy_(tensors[index].second);
    named.emplace_back(std::move(name), std::move(tensor));
  }
  std::vector<at::Tensor> values;
  for (const auto& [name, tensor] : named) values.push_back(tensor);
  broadcast_tensors(values, communicator);
  return named;
}

CheckpointPart file_of(std::string name, NamedTensors tensors) {
  return {.name = std::move(name), .write = [tensors = std::move(tensors)](CheckpointFileWriter& file) {
            std::vector<TensorInfo> infos;
            for (const auto& [tensor_name, tensor] : tensors) {
              infos.push_back({.name = tensor_name,
                               .type = stored_type(tensor_name, tensor.scalar_type()),
                               .shape = tensor.sizes().vec()});
            }
            write_safetensors({.header = [&](std::string_view bytes) { file.write(bytes); },
                               .tensor = [&](const std::string& tensor_name,
                                             std::string_view bytes) { file.write_tensor(tensor_name, bytes); }},
                              infos,
                              [&](std::size_t index) {
                                const auto& tensor = tensors[index].second;
                                return std::span{static_cast<const std::byte*>(tensor.const_data_ptr()),
                                                 tensor.nbytes()};
                              },
                              {{"format", "pt"}});
          }};
}

}  // namespace libtrain::detail
