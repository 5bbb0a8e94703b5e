#include <libtrain/train/checkpoint.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/splitmix.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/background_writer.hpp>
#include <libtrain/checkpoint/checkpoint_file_writer.hpp>
#include <libtrain/checkpoint/checkpoint_folder.hpp>
#include <libtrain/checkpoint/checkpoint_writer.hpp>
#include <libtrain/checkpoint/detail/weights_file.hpp>
#include <libtrain/checkpoint/safetensors.hpp>
#include <libtrain/checkpoint/weights.hpp>
#include <libtrain/comm/detail/agreement.hpp>
#include <libtrain/sync/broadcast.hpp>
#include <libtrain/train/context.hpp>
#include <libtrain/train/detail/run_id.hpp>
#include <libtrain/train/gather_loader_state.hpp>

namespace libtrain {

namespace {

using optim::NamedTensors;

constexpr const char* kLoaderFile = "loader.json";
constexpr const char* kRandomName = "random";

// ---- The parts.

class ModulePart final : public Checkpointable {
 public:
  explicit ModulePart(torch::nn::Module& module) : module_(module) {}

  NamedTensors tensors() override {
    NamedTensors named;
    for (const auto& item : module_.named_parameters()) named.emplace_back(item.key(), item.value());
    for (const auto& item : module_.named_buffers()) {
      if (item.value().defined()) named.emplace_back(item.key(), item.value());
    }
    return named;
  }

  void load(const NamedTensors& tensors) override {
    std::map<std::string, const at::Tensor*> given;
    for (const auto& [name, tensor] : tensors) given.emplace(name, &tensor);
    const auto own = this->tensors();
    for (const auto& [name, tensor] : own) {
      const auto found = given.find(name);
      if (found == given.end())
        throw UsageError(text("The checkpoint has no tensor '", name, "', and the module does."));
      const auto& saved = *found->second;
      if (saved.sizes() != tensor.sizes() || saved.scalar_type() != tensor.scalar_type()) {
        throw UsageError(text("'", name, "' has shape ", saved.sizes(), " and dtype ", saved.scalar_type(),
                              " in the checkpoint, and ", tensor.sizes(), " and ", tensor.scalar_type(),
                              " in the module."));
      }
    }
    for (const auto& [name, tensor] : tensors) {
      if (std::ranges::find(own, name, &NamedTensors::value_type::first) == own.end())
        throw UsageError(text("The checkpoint has a tensor '", name, "', and the module does not."));
    }
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : own) tensor.copy_(*given.at(name));
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

// ---- Generators of random numbers, which differ between ranks.

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

// On rank 0, the states of all ranks.
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
  auto generators = generators_of(communicator.device());
  const auto find = [&](int rank, std::size_t index) -> const at::Tensor* {
    for (const auto& [name, tensor] : saved) {
      if (name == generator_name(rank, index)) return &tensor;
    }
    return nullptr;
  };
  for (std::size_t index = 0; index < generators.size(); ++index) {
    auto& generator = generators[index];
    const auto* const own = find(communicator.rank(), index);
    if (saved_world_size == communicator.world_size() && own != nullptr) {
      const std::lock_guard lock(generator.mutex());
      generator.set_state(own->cpu());
      continue;
    }
    // Another number of ranks, or another kind of device: numbers that no rank has drawn before.
    if (const auto* const first = find(0, 0)) {
      const std::lock_guard lock(generator.mutex());
      auto copy = generators.front().clone();
      copy.set_state(first->cpu());
      const auto of_step = detail::combine_keys(copy.current_seed(), static_cast<std::uint64_t>(step));
      generator.set_current_seed(detail::combine_keys(of_step, static_cast<std::uint64_t>(communicator.rank())));
    }
  }
}

// ---- Copies and files.

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

CheckpointPart part_of(const std::string& name, NamedTensors tensors) {
  return {.name = name + ".safetensors", .write = [tensors = std::move(tensors)](CheckpointFileWriter& file) {
            std::vector<TensorInfo> infos;
            for (const auto& [tensor_name, tensor] : tensors) {
              infos.push_back({.name = tensor_name,
                               .type = detail::stored_type(tensor_name, tensor.scalar_type()),
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

// Rank 0's tensors on all ranks, on the communicator's device. Others pass none.
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
  std::istringstream lines{communicator.broadcast_bytes(described, 0)};
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

bool is_part_name(const std::string& name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  return !name.empty() && name.size() < 100 && name.find_first_not_of(kAllowed) == std::string::npos &&
         name != kRandomName;
}

}  // namespace

class Checkpoint::State {
 public:
  State(Communicator& communicator, std::filesystem::path root, CheckpointOptions options)
      : communicator_(communicator), root_(std::move(root)), options_(std::move(options)) {
    if (options_.failures_allowed < 0) {
      throw UsageError(
          text("CheckpointOptions::failures_allowed is ", options_.failures_allowed, "; it must be 0 or more."));
    }
    if (options_.run_id.empty()) options_.run_id = detail::agree_on_run_id(communicator);
  }

  ~State() {
    try {
      background_.wait();
    } catch (const std::exception& error) {
      log_warning(text("The last checkpoint was not written: ", error.what()));
    }
  }

  void add(const std::string& name, std::unique_ptr<Checkpointable> part) {
    if (!is_part_name(name)) {
      throw UsageError(text("A part of a checkpoint cannot be called '", name,
                            "': use 1 to 99 letters, digits, '_' and '-', and not 'random'."));
    }
    for (const auto& [other, unused] : parts_) {
      if (other == name) throw UsageError(text("The checkpoint has a part '", name, "' already. Choose another name."));
    }
    parts_.emplace_back(name, std::move(part));
  }

  void save(const CheckpointPosition& position);
  CheckpointPosition load(const std::filesystem::path& folder);
  std::optional<CheckpointPosition> load_latest();
  void wait();

  const std::filesystem::path& root() const { return root_; }

 private:
  void open_writer();
  void settle_last_write();
  CheckpointPosition load_parts(const std::optional<CheckpointFolder>& folder);

  Communicator& communicator_;
  const std::filesystem::path root_;
  CheckpointOptions options_;
  std::vector<std::pair<std::string, std::unique_ptr<Checkpointable>>> parts_;
  std::vector<std::string> former_runs_;  // that have led to the loaded checkpoint
  int failures_ = 0;                      // of writes, one after the other
  bool is_open_ = false;
  bool is_writing_ = false;  // or has written, and the outcome is not known yet
  // Rank 0's.
  std::optional<CheckpointWriter> writer_;
  BackgroundWriter background_;
};

// In the first save(), so that a run which fails before it leaves nothing.
void Checkpoint::State::open_writer() {
  if (is_open_) return;
  detail::run_together(communicator_, "Opening the folder of checkpoints", [&] {
    if (communicator_.rank() != 0) return;
    auto run_ids = former_runs_;
    if (run_ids.empty() || run_ids.back() != options_.run_id) run_ids.push_back(options_.run_id);
    writer_.emplace(root_, std::move(run_ids), options_.retention);
  });
  is_open_ = true;
}

void Checkpoint::State::settle_last_write() {
  if (!std::exchange(is_writing_, false)) return;
  try {
    background_.wait();
    failures_ = 0;
  } catch (const EnvironmentError& error) {
    if (++failures_ > options_.failures_allowed) throw;
    log_warning(text("A checkpoint was not written, and the training goes on: ", error.what()));
  }
}

void Checkpoint::State::save(const CheckpointPosition& position) {
  const CallPurpose purpose{communicator_, "a checkpoint"};
  open_writer();
  std::string loader;
  if (position.loader) loader = gather_loader_state(*position.loader, communicator_).to_text();
  const bool writes = communicator_.rank() == 0;
  std::vector<CheckpointPart> files;
  for (const auto& [name, part] : parts_) {
    const auto tensors = part->tensors();
    if (writes) files.push_back(part_of(name, copied_to_host(tensors)));
  }
  auto random = gather_generators(communicator_);
  if (!writes) return;
  files.push_back(part_of(kRandomName, std::move(random)));
  if (!loader.empty()) {
    files.push_back({.name = kLoaderFile, .write = [loader](CheckpointFileWriter& file) { file.write(loader); }});
  }
  settle_last_write();
  CheckpointManifest manifest{.step = position.step,
                              .epoch = position.epoch,
                              .world_size = communicator_.world_size(),
                              .metrics = position.metrics,
                              .configuration = options_.configuration};
  background_.start([this, manifest = std::move(manifest), files = std::move(files)]() mutable {
    try {
      const auto begun = writer_->begin(manifest.step);
      manifest.files = write_checkpoint_files(root_, begun, std::move(files));
      writer_->commit(std::move(manifest));
    } catch (...) {
      writer_->abandon();
      throw;
    }
  });
  is_writing_ = true;
  if (!options_.in_background) settle_last_write();
}

void Checkpoint::State::wait() {
  is_writing_ = false;
  detail::run_together(communicator_, "Writing a checkpoint", [&] { background_.wait(); });
}

std::optional<CheckpointPosition> Checkpoint::State::load_latest() {
  const CallPurpose purpose{communicator_, "loading a checkpoint"};
  std::optional<CheckpointFolder> folder;
  detail::run_together(communicator_, "Looking for a checkpoint", [&] {
    if (communicator_.rank() != 0) return;
    auto found = find_newest_checkpoint(root_);
    for (const auto& problem : found.passed_over) log_warning(text("A checkpoint is passed over: ", problem));
    folder = std::move(found.checkpoint);
  });
  if (communicator_.broadcast_bytes(folder ? "found" : "", 0).empty()) return std::nullopt;
  return load_parts(folder);
}

CheckpointPosition Checkpoint::State::load(const std::filesystem::path& path) {
  const CallPurpose purpose{communicator_, "loading a checkpoint"};
  std::optional<CheckpointFolder> folder;
  detail::run_together(communicator_, "Opening a checkpoint", [&] {
    if (communicator_.rank() != 0) return;
    folder.emplace(path);
    folder->verify();
  });
  return load_parts(folder);
}

// `folder` is rank 0's.
CheckpointPosition Checkpoint::State::load_parts(const std::optional<CheckpointFolder>& folder) {
  std::string manifest_text;
  std::string loader;
  detail::run_together(communicator_, "Reading a checkpoint", [&] {
    if (!folder) return;
    manifest_text = to_text(folder->manifest());
    if (folder->find(kLoaderFile) != nullptr) loader = folder->read(kLoaderFile);
  });
  const auto manifest =
      parse_checkpoint_manifest(communicator_.broadcast_bytes(manifest_text, 0), "the manifest of rank 0");
  loader = communicator_.broadcast_bytes(loader, 0);
  const auto tensors_of = [&](const std::string& name) {
    NamedTensors named;
    detail::run_together(communicator_, "Reading a checkpoint", [&] {
      if (!folder) return;
      if (folder->find(name + ".safetensors") == nullptr) {
        throw UsageError(text("The checkpoint '", folder->path().string(), "' has no part '", name,
                              "'. Add the same parts as the program that wrote it."));
      }
      for (auto& [key, tensor] : read_tensors(folder->file(name + ".safetensors").string()))
        named.emplace_back(key, std::move(tensor));
    });
    return broadcast_named(std::move(named), communicator_);
  };
  for (const auto& [name, part] : parts_) {
    const auto tensors = tensors_of(name);
    detail::run_together(communicator_, "Loading a checkpoint", [&] {
      try {
        part->load(tensors);
      } catch (const UsageError& error) {
        throw UsageError(
            text("Part '", name, "' of the checkpoint of step ", manifest.step, " does not fit: ", error.what()));
      }
    });
  }
  restore_generators(tensors_of(kRandomName), manifest.step, manifest.world_size, communicator_);
  former_runs_ = manifest.run_ids;
  CheckpointPosition position{.step = manifest.step, .epoch = manifest.epoch, .metrics = manifest.metrics};
  if (!loader.empty()) position.loader = data::LoaderState::from_text(loader);
  return position;
}

Checkpoint::Checkpoint(Communicator& communicator, std::filesystem::path root, CheckpointOptions options)
    : state_(std::make_unique<State>(communicator, std::move(root), std::move(options))) {}

Checkpoint::Checkpoint(Context& context, CheckpointOptions options)
    : Checkpoint(context.communicator(), context.output_directory() / "checkpoints", [&] {
        if (options.run_id.empty()) options.run_id = context.run_id();
        return std::move(options);
      }()) {}

Checkpoint::~Checkpoint() = default;

void Checkpoint::add(const std::string& name, torch::nn::Module& module) {
  state_->add(name, std::make_unique<ModulePart>(module));
}

void Checkpoint::add(const std::string& name, torch::optim::Optimizer& optimizer, const torch::nn::Module& module) {
  state_->add(name, std::make_unique<OptimizerPart>(optimizer, module));
}

void Checkpoint::add(const std::string& name, ShardedOptimizer& optimizer) {
  state_->add(name, std::make_unique<ShardedPart>(optimizer));
}

void Checkpoint::add(const std::string& name, optim::MovingAverage& average) {
  state_->add(name, std::make_unique<AveragePart>(average));
}

void Checkpoint::add(const std::string& name, optim::LossScaler& scaler) {
  state_->add(name, std::make_unique<ScalerPart>(scaler));
}

void Checkpoint::add(const std::string& name, std::unique_ptr<Checkpointable> part) {
  state_->add(name, std::move(part));
}

void Checkpoint::save(const CheckpointPosition& position) {
  state_->save(position);
}

std::optional<CheckpointPosition> Checkpoint::load_latest() {
  return state_->load_latest();
}

CheckpointPosition Checkpoint::load(const std::filesystem::path& folder) {
  return state_->load(folder);
}

void Checkpoint::wait() {
  state_->wait();
}

const std::filesystem::path& Checkpoint::root() const {
  return state_->root();
}

}  // namespace libtrain
