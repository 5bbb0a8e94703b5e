#include <libtrain/train/checkpoint.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/checkpoint_folder.hpp>
#include <libtrain/checkpoint/weights.hpp>
#include <libtrain/optim/fused_adamw.hpp>
#include <libtrain/optim/optimizer_state.hpp>
#include <libtrain/sync/broadcast.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>

#include <tests/support/device.hpp>
#include <tests/support/log_sinks.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain {
namespace {

using test::device;
using test::message_of;
using test::on_fresh_ranks;
using test::on_ranks;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;
using torch::optim::AdamWOptions;

// The path of a new folder, the same on all ranks; rank 0 removes it after the last one has left the scope.
class SharedFolder {
 public:
  explicit SharedFolder(Communicator& communicator) : communicator_(communicator) {
    if (communicator.rank() == 0) folder_.emplace();
    path_ = communicator.broadcast_bytes(folder_ ? folder_->path().string() : "", 0);
  }
  ~SharedFolder() { communicator_.barrier(); }
  std::filesystem::path root() const { return std::filesystem::path{path_} / "checkpoints"; }

 private:
  Communicator& communicator_;
  std::optional<test::TemporaryFolder> folder_;
  std::string path_;
};

// A training with everything that a checkpoint contains.
struct CheckpointedTraining {
  explicit CheckpointedTraining(Communicator& given, std::uint64_t seed = 1)
      : communicator(given), model([&] {
          torch::manual_seed(seed);
          torch::nn::Sequential layers{torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8), torch::nn::Linear(8, 2)};
          layers->to(device());
          return layers;
        }()) {
    synchronizer.emplace(*model, communicator, SynchronizerOptions{.buffers = BufferPolicy::averaged});
    average.emplace(*model);
    adamw.emplace(model->parameters(), AdamWOptions(0.01));
  }

  void add_to(Checkpoint& checkpoint) {
    checkpoint.add("model", *model);
    checkpoint.add("optimizer", *adamw, *model);
    checkpoint.add("average", *average);
    checkpoint.add("scaler", scaler);
  }

  void step(int number) {
    const auto inputs =
        at::sin(at::arange(16, test::on_device(at::kFloat)) * (number + 1 + communicator.rank())).view({4, 4});
    scaler.scale(model->forward(inputs).square().mean()).backward();
    synchronizer->wait();
    scaler.step(*adamw);
    scaler.update();
    synchronizer->zero_grad();
    average->update(*model);
  }

  // Everything end to end, on the CPU.
  at::Tensor everything() {
    std::vector<at::Tensor> parts;
    const auto add = [&](const at::Tensor& tensor) {
      parts.push_back(tensor.detach().cpu().to(at::kDouble).flatten());
    };
    for (const auto& tensor : model->parameters()) add(tensor);
    for (const auto& tensor : model->buffers()) add(tensor);
    for (const auto& [name, tensor] : optim::optimizer_state(*adamw, *model)) add(tensor);
    for (const auto& [name, tensor] : average->named_tensors()) add(tensor);
    const auto state = scaler.state();
    add(torch::tensor({state.scale, static_cast<double>(state.finite_steps), static_cast<double>(state.overflows),
                       static_cast<double>(average->updates())},
                      at::kDouble));
    return at::cat(parts);
  }

  Communicator& communicator;
  torch::nn::Sequential model;
  std::optional<GradientSynchronizer> synchronizer;
  std::optional<optim::MovingAverage> average;
  std::optional<optim::FusedAdamW> adamw;
  optim::LossScaler scaler{{.initial_scale = 8, .growth_interval = 2}};
};

TEST(Checkpoint, ContinuesBitForBit) {
  on_ranks([](Communicator& communicator) {
    const SharedFolder folder{communicator};
    CheckpointedTraining straight{communicator};
    {
      Checkpoint checkpoint{communicator, folder.root()};
      straight.add_to(checkpoint);
      EXPECT_EQ(checkpoint.load_latest(), std::nullopt);
      for (int step = 0; step < 5; ++step) {
        straight.step(step);
        if (step == 2) checkpoint.save({.step = 3, .epoch = 1, .metrics = {{"loss", 0.5}}});
      }
      checkpoint.wait();
    }
    CheckpointedTraining resumed{communicator, 7};
    Checkpoint checkpoint{communicator, folder.root()};
    resumed.add_to(checkpoint);
    const auto position = checkpoint.load_latest();
    ASSERT_TRUE(position);
    EXPECT_EQ(position->step, 3);
    EXPECT_EQ(position->epoch, 1);
    EXPECT_EQ(position->metrics.at("loss"), 0.5);
    EXPECT_EQ(position->loader, std::nullopt);
    for (int step = 3; step < 5; ++step) resumed.step(step);
    EXPECT_TRUE(at::equal(straight.everything(), resumed.everything()));
    checkpoint.save({.step = 5});  // the folder is free again
    checkpoint.wait();
  });
}

struct ShardedTraining {
  explicit ShardedTraining(Communicator& communicator) : model{torch::nn::Linear(4, 6), torch::nn::Linear(6, 2)} {
    model->to(device());
    // Ranks that are threads share LibTorch's generator.
    const at::NoGradGuard no_grad;
    for (auto& parameter : model->parameters())
      parameter.copy_(at::sin(at::arange(parameter.numel(), at::kFloat)).view(parameter.sizes()));
    optimizer.emplace(*model, AdamWOptions(0.01));
    synchronizer.emplace(*model, communicator, SynchronizerOptions{.wire_format = optimizer->wire_format()});
  }

  void step(int number) {
    const auto inputs = at::sin(at::arange(8, test::on_device(at::kFloat)) * (number + 1)).view({2, 4});
    model->forward(inputs).square().mean().backward();
    synchronizer->wait();
    optimizer->step();
    synchronizer->zero_grad();
  }

  torch::nn::Sequential model;
  std::optional<ShardedOptimizer> optimizer;
  std::optional<GradientSynchronizer> synchronizer;
};

// Written by their ranks; one rank alone has one file.
TEST(Checkpoint, HasTheStateOfAShardedOptimizerInFilesOfItsRanks) {
  on_ranks([](Communicator& communicator) {
    const SharedFolder folder{communicator};
    ShardedTraining training{communicator};
    training.step(0);
    Checkpoint checkpoint{communicator, folder.root()};
    checkpoint.add("optimizer", *training.optimizer);
    checkpoint.save({.step = 1});
    const auto whole = training.optimizer->state_dict();
    checkpoint.wait();
    if (communicator.rank() != 0) return;
    const auto step = folder.root() / checkpoint_folder_name(1);
    std::map<std::string, at::Tensor> found;
    std::vector<std::string> names{"manifest.json", "random.safetensors"};
    for (int rank = 1; rank <= communicator.world_size(); ++rank) {
      const auto share = text("optimizer.0000", rank, "-of-0000", communicator.world_size(), ".safetensors");
      names.push_back(communicator.world_size() == 1 ? "optimizer.safetensors" : share);
      const auto tensors = read_tensors((step / names.back()).string());
      EXPECT_EQ(tensors.size() == whole.size(), communicator.world_size() == 1) << names.back();
      found.insert(tensors.begin(), tensors.end());
    }
    std::vector<std::string> present;
    for (const auto& entry : std::filesystem::directory_iterator(step)) present.push_back(entry.path().filename());
    EXPECT_THAT(present, UnorderedElementsAreArray(names));
    EXPECT_EQ(found.size(), whole.size());
    for (const auto& [name, tensor] : whole) EXPECT_TRUE(at::equal(found.at(name), tensor.cpu())) << name;
  });
}

// With the state of three ranks on two, and of two on three.
TEST(Checkpoint, LoadsAShardedOptimizerOnAnotherNumberOfRanks) {
  on_fresh_ranks(3, {}, [](Communicator& all) {
    const SharedFolder folder{all};
    const auto two = all.split(all.rank() < 2 ? 0 : 1, all.rank());
    std::optional<ShardedTraining> training;
    const auto train = [&](Communicator& communicator, int from, int to) {
      Checkpoint checkpoint{communicator, folder.root()};
      training.emplace(communicator);
      checkpoint.add("model", *training->model);
      checkpoint.add("optimizer", *training->optimizer);
      EXPECT_EQ(checkpoint.load_latest().has_value(), from > 0);
      for (int step = from; step < to; ++step) training->step(step);
      checkpoint.save({.step = to});
      checkpoint.wait();
    };
    train(all, 0, 2);
    all.barrier();
    if (all.rank() < 2) train(*two, 2, 4);
    all.barrier();
    train(all, 4, 6);
    ShardedTraining straight{all};
    for (int step = 0; step < 6; ++step) straight.step(step);
    for (std::size_t index = 0; index < straight.model->parameters().size(); ++index) {
      EXPECT_TRUE(at::allclose(straight.model->parameters()[index], training->model->parameters()[index], 1e-5, 1e-6))
          << index;
    }
  });
}

TEST(Checkpoint, ContinuesAShardedOptimizer) {
  on_ranks([](Communicator& communicator) {
    const SharedFolder folder{communicator};
    ShardedTraining straight{communicator};
    {
      Checkpoint checkpoint{communicator, folder.root()};
      checkpoint.add("model", *straight.model);
      checkpoint.add("optimizer", *straight.optimizer);
      for (int step = 0; step < 4; ++step) {
        straight.step(step);
        if (step == 1) checkpoint.save({.step = 2});
      }
      checkpoint.wait();
    }
    ShardedTraining resumed{communicator};
    Checkpoint checkpoint{communicator, folder.root()};
    checkpoint.add("model", *resumed.model);
    checkpoint.add("optimizer", *resumed.optimizer);
    ASSERT_TRUE(checkpoint.load_latest());
    for (int step = 2; step < 4; ++step) resumed.step(step);
    for (std::size_t index = 0; index < straight.model->parameters().size(); ++index) {
      EXPECT_TRUE(at::equal(straight.model->parameters()[index].detach().cpu(),
                            resumed.model->parameters()[index].detach().cpu()))
          << index;
    }
  });
}

TEST(Checkpoint, HasThePositionInTheDataOfAllRanks) {
  on_ranks([](Communicator& communicator) {
    const SharedFolder folder{communicator};
    Checkpoint checkpoint{communicator, folder.root()};
    data::LoaderState state{.seed = 3, .epoch = 2, .position = 10, .dataset_size = 100, .bad_samples = {{}}};
    if (communicator.rank() == 0) state.bad_samples = {{7}};
    checkpoint.save({.step = 1, .loader = state});
    checkpoint.wait();
    const auto position = checkpoint.load_latest();
    ASSERT_TRUE(position && position->loader);
    state.bad_samples.assign(static_cast<std::size_t>(communicator.world_size()), {});
    state.bad_samples.front() = {7};
    EXPECT_EQ(*position->loader, state);
  });
}

TEST(Checkpoint, IsLoadedOnAnotherNumberOfRanks) {
  on_fresh_ranks(3, {}, [](Communicator& all) {
    const SharedFolder folder{all};
    const auto saving = all.split(all.rank() < 2 ? 0 : 1, all.rank());
    at::Tensor saved;
    if (all.rank() < 2) {
      CheckpointedTraining training{*saving};
      training.step(0);
      Checkpoint checkpoint{*saving, folder.root()};
      training.add_to(checkpoint);
      checkpoint.save({.step = 1});
      checkpoint.wait();
      if (all.rank() == 0) saved = training.everything();
    }
    all.barrier();
    CheckpointedTraining training{all, 5};
    Checkpoint checkpoint{all, folder.root()};
    training.add_to(checkpoint);
    ASSERT_TRUE(checkpoint.load_latest());
    if (all.rank() == 0) {
      EXPECT_TRUE(at::equal(saved, training.everything()));
    }
    training.step(1);
  });
}

TEST(Checkpoint, CanBeOfARunBeforeItsFirstStep) {
  on_ranks([](Communicator& communicator) {
    const SharedFolder folder{communicator};
    CheckpointedTraining straight{communicator};
    {
      Checkpoint checkpoint{communicator, folder.root()};
      straight.add_to(checkpoint);
      checkpoint.save({});
      checkpoint.wait();
    }
    CheckpointedTraining resumed{communicator, 3};
    resumed.step(7);
    Checkpoint checkpoint{communicator, folder.root()};
    resumed.add_to(checkpoint);
    ASSERT_TRUE(checkpoint.load_latest());
    straight.step(0);
    resumed.step(0);
    EXPECT_TRUE(at::equal(straight.everything(), resumed.everything()));
  });
}

TEST(Checkpoint, RestoresTheNumbersThatAreDrawnNext) {
  on_fresh_ranks(1, {}, [](Communicator& communicator) {
    if (communicator.world_size() > 1) return;
    const SharedFolder folder{communicator};
    Checkpoint checkpoint{communicator, folder.root(), {.in_background = false}};
    torch::manual_seed(3);
    static_cast<void>(at::rand({5}, test::on_device(at::kFloat)));
    checkpoint.save({.step = 1});
    const auto drawn = at::rand({5}, test::on_device(at::kFloat)).cpu();
    const auto on_host = at::rand({5});
    torch::manual_seed(4);
    ASSERT_TRUE(checkpoint.load_latest());
    EXPECT_TRUE(at::equal(at::rand({5}, test::on_device(at::kFloat)).cpu(), drawn));
    EXPECT_TRUE(at::equal(at::rand({5}), on_host));
  });
}

TEST(Checkpoint, HasWeightsThatOtherProgramsRead) {
  on_ranks([](Communicator& communicator) {
    const SharedFolder folder{communicator};
    CheckpointedTraining training{communicator};
    training.step(0);
    Checkpoint checkpoint{communicator, folder.root(), {.in_background = false}};
    training.add_to(checkpoint);
    checkpoint.save({.step = 1});
    communicator.barrier();
    const auto tensors = read_tensors((folder.root() / "step-00000001/model.safetensors").string());
    EXPECT_EQ(tensors.size(), 9u);
    for (const auto& item : training.model->named_parameters())
      EXPECT_TRUE(at::equal(tensors.at(item.key()), item.value().detach().cpu())) << item.key();
  });
}

TEST(Checkpoint, PassesOverADamagedOne) {
  on_ranks([](Communicator& communicator) {
    const SharedFolder folder{communicator};
    CheckpointedTraining training{communicator};
    Checkpoint checkpoint{communicator, folder.root()};
    training.add_to(checkpoint);
    for (int step = 1; step <= 2; ++step) {
      training.step(step);
      checkpoint.save({.step = step});
    }
    checkpoint.wait();
    if (communicator.rank() == 0) {
      std::fstream file{folder.root() / "step-00000002/average.safetensors", std::ios::in | std::ios::out};
      file.seekp(-1, std::ios::end);
      file.put('x');
    }
    communicator.barrier();
    const auto position = checkpoint.load_latest();
    ASSERT_TRUE(position);
    EXPECT_EQ(position->step, 1);
    EXPECT_THAT(message_of<EnvironmentError>([&] { checkpoint.load(folder.root() / "step-00000002"); }),
                HasSubstr("average.safetensors"));
  });
}

TEST(Checkpoint, NamesWhatDoesNotFitOnAllRanks) {
  on_ranks([](Communicator& communicator) {
    const SharedFolder folder{communicator};
    CheckpointedTraining training{communicator};
    {
      Checkpoint checkpoint{communicator, folder.root(), {.in_background = false}};
      training.add_to(checkpoint);
      checkpoint.save({.step = 1});
      communicator.barrier();
    }
    const auto message = [&](const auto& add) {
      Checkpoint checkpoint{communicator, folder.root()};
      add(checkpoint);
      return message_of<UsageError>([&] { checkpoint.load_latest(); });
    };
    const auto add_others = [&](Checkpoint& checkpoint, torch::nn::Module& model) {
      checkpoint.add("model", model);
      checkpoint.add("optimizer", *training.adamw, *training.model);
      checkpoint.add("average", *training.average);
      checkpoint.add("scaler", training.scaler);
    };
    torch::nn::Linear other{4, 8};
    other->to(device());
    EXPECT_THAT(message([&](Checkpoint& checkpoint) { add_others(checkpoint, *other); }),
                AllOf(HasSubstr("Part 'model' of the checkpoint of step 1"), HasSubstr("has no tensor 'weight'")));
    torch::nn::Sequential narrower{torch::nn::Linear(4, 7), torch::nn::BatchNorm1d(7), torch::nn::Linear(7, 2)};
    narrower->to(device());
    EXPECT_THAT(message([&](Checkpoint& checkpoint) { add_others(checkpoint, *narrower); }),
                HasSubstr("'0.weight' has shape [8, 4]"));
    torch::nn::Sequential shorter{torch::nn::Linear(4, 8)};
    shorter->to(device());
    EXPECT_THAT(message([&](Checkpoint& checkpoint) { add_others(checkpoint, *shorter); }),
                HasSubstr("has a tensor '1."));
    EXPECT_THAT(message([&](Checkpoint& checkpoint) { checkpoint.add("discriminator", *other); }),
                HasSubstr("has a part 'model', which this program has not added"));
    EXPECT_THAT(message([&](Checkpoint& checkpoint) {
                  training.add_to(checkpoint);
                  checkpoint.add("discriminator", *other);
                }),
                HasSubstr("has no part 'discriminator'"));

    Checkpoint checkpoint{communicator, folder.root()};
    checkpoint.add("model", *training.model);
    EXPECT_THAT(message_of<UsageError>([&] { checkpoint.add("model", *training.model); }), HasSubstr("already"));
    EXPECT_THAT(message_of<UsageError>([&] { checkpoint.add("../model", *training.model); }),
                HasSubstr("cannot be called '../model'"));
    EXPECT_THAT(message_of<UsageError>([&] { Checkpoint(communicator, folder.root(), {.failures_allowed = -1}); }),
                HasSubstr("failures_allowed is -1"));
  });
}

TEST(Checkpoint, AFailedWriteIsAWarningAtFirst) {
  on_fresh_ranks(1, {}, [](Communicator& communicator) {
    if (communicator.world_size() > 1) return;
    const SharedFolder folder{communicator};
    CheckpointedTraining training{communicator};
    Checkpoint checkpoint{communicator, folder.root(), {.in_background = false, .failures_allowed = 1}};
    training.add_to(checkpoint);
    checkpoint.save({.step = 1});
    for (int step = 2; step <= 5; ++step) {
      std::ofstream{folder.root() / checkpoint_folder_name(step)} << "in the way";
    }
    checkpoint.save({.step = 2});
    EXPECT_THAT(message_of<EnvironmentError>([&] { checkpoint.save({.step = 3}); }), HasSubstr("step-00000003"));
    EXPECT_EQ(checkpoint.load_latest()->step, 1);
  });
}

// With the state written by rank 0, and by all ranks.
TEST(Checkpoint, AFailureOfTheWriteIsThrownByWaitUnlessALaterOneSucceeds) {
  const test::SilentLog silent;
  on_ranks([](Communicator& communicator) {
    for (const bool is_sharded : {false, true}) {
      for (const bool in_background : {true, false}) {
        SCOPED_TRACE(text(is_sharded ? "sharded" : "whole", in_background ? ", in the background" : ""));
        const SharedFolder folder{communicator};
        ShardedTraining training{communicator};
        Checkpoint checkpoint{communicator, folder.root(), {.in_background = in_background}};
        checkpoint.add("model", *training.model);
        if (is_sharded) checkpoint.add("optimizer", *training.optimizer);
        checkpoint.save({.step = 1});
        checkpoint.wait();
        if (communicator.rank() == 0) std::ofstream{folder.root() / checkpoint_folder_name(2)} << "in the way";
        const auto failure = [&] { return message_of<EnvironmentError>([&] { checkpoint.wait(); }); };
        checkpoint.save({.step = 2});
        EXPECT_THAT(failure(), HasSubstr("step-00000002"));
        checkpoint.save({.step = 2});
        checkpoint.mark_best(1);  // waits for the write, too
        EXPECT_THAT(failure(), HasSubstr("step-00000002"));
        checkpoint.save({.step = 3});
        checkpoint.wait();
      }
    }
  });
}

}  // namespace
}  // namespace libtrain
