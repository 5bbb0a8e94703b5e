// Models in a Trainer and in a loop by hand: equal weights.

#include <libtrain/train/trainer.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <libtrain/base/error.hpp>
#include <libtrain/data/token_batch.hpp>
#include <libtrain/models/resnet.hpp>
#include <libtrain/optim/learning_rate.hpp>
#include <libtrain/sync/wire/half_precision.hpp>
#include <libtrain/train/autocast.hpp>

#include <tests/support/device.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/train/trainer_runs.hpp>

namespace libtrain {
namespace {

using test::device;
using test::message_of;
using test::on_ranks;
using test::trainer::batch_size;
using test::trainer::small_model;
using test::trainer::TestRun;
using test::trainer::Waves;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<at::Tensor> weights_of(const torch::nn::Module& module) {
  std::vector<at::Tensor> weights;
  for (const auto& tensor : module.parameters()) weights.push_back(tensor.detach().cpu().flatten());
  for (const auto& tensor : module.buffers()) weights.push_back(tensor.detach().cpu().to(at::kFloat).flatten());
  return weights;
}

// ---- A classifier with batch norm, augmentation, schedule and evaluation, as in examples/digits

struct Classifier {
  Classifier() {
    model->to(device());
    test::trainer::set_weights(*model, 3);
  }

  at::Tensor loss(const data::Batch& batch) {
    return torch::nn::functional::cross_entropy(model->forward(batch.images.to(device())), batch.labels.to(device()));
  }

  models::ResNet model{models::ResNetOptions{
      .layers = {1, 1}, .classes = 3, .width = 32, .input_channels = 1, .stem = models::Stem::small}};
  torch::optim::AdamW adamw{model->parameters(), torch::optim::AdamWOptions(0.01)};
};

optim::Schedule classifier_schedule(const TrainingLength& length) {
  return optim::warm_up({.steps = length.steps_per_epoch}, optim::cosine_decay({.steps = length.steps}));
}

TEST(TrainerModels, TrainsAResNetAsALoopByHand) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    const Waves waves{64};
    const auto scale = [](data::Sample& sample, data::SampleRandom& random) {
      sample.image = sample.image * (0.5 + random.uniform());
    };
    data::DataLoader loader{
        waves, {.batch_size = batch_size(communicator), .workers = 1, .transform = scale}, context->shard()};
    const Waves held_out_waves{23};
    data::DataLoader held_out{
        held_out_waves, {.batch_size = 4, .workers = 1, .remainder = data::Remainder::exact}, context->shard()};
    const auto right = [](Classifier& classifier, const data::Batch& batch) {
      return classifier.model->forward(batch.images.to(device())).argmax(1).eq(batch.labels.to(device()));
    };
    Classifier by_hand;
    double accuracy = 0;
    {
      GradientSynchronizer synchronizer{*by_hand.model, communicator};
      const auto steps = static_cast<std::int64_t>(loader.batches_per_epoch());
      optim::LearningRate rate{by_hand.adamw, 0.01,
                               classifier_schedule({.epochs = 2, .steps = 2 * steps, .steps_per_epoch = steps})};
      std::int64_t step = 0;
      for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
        for (auto& batch : loader.epoch(epoch)) {
          rate.set(step++);
          by_hand.loss(batch).backward();
          synchronizer.wait();
          by_hand.adamw.step();
          synchronizer.zero_grad();
        }
        synchronizer.broadcast_buffers();
        accuracy = evaluate(*by_hand.model, held_out, communicator, [&](const data::Batch& batch) {
                     return right(by_hand, batch);
                   }).mean();
      }
    }
    Classifier trained;
    Trainer trainer{
        *context, trained.model, trained.adamw, {.epochs = 2, .schedule = classifier_schedule, .tensor_board = false}};
    trainer.evaluate_with(held_out, {"accuracy"}, [&](const data::Batch& batch) { return right(trained, batch); });
    trainer.fit(loader, [&](const data::Batch& batch) { return trained.loss(batch); });
    EXPECT_TRUE(at::equal(at::cat(weights_of(*trained.model)), at::cat(weights_of(*by_hand.model))));
    EXPECT_EQ(trainer.state().evaluation.at("accuracy"), accuracy);
  });
}

// ---- A language model on texts of different lengths

class Phrases : public data::DatasetOf<data::TokenSample> {
 public:
  std::uint64_t size() const override { return 48; }
  data::TokenSample get(std::uint64_t index, data::SampleRandom& /*random*/) const override {
    data::TokenSample sample;
    for (std::uint64_t position = 0; position < 3 + index % 5; ++position)
      sample.ids.push_back(static_cast<std::int64_t>(1 + (index * 7 + position * position) % 19));
    return sample;
  }
};

struct LanguageModelImpl : torch::nn::Module {
  LanguageModelImpl() {
    register_module("embedding", embedding);
    register_module("gru", gru);
    register_module("output", output);
  }

  // The mean loss of each next token, without the padding (0).
  at::Tensor loss(const data::TokenBatch& batch) {
    const auto ids = batch.ids.to(device());
    const auto inputs = ids.narrow(1, 0, ids.size(1) - 1);
    const auto logits = output(std::get<0>(gru->forward(embedding(inputs))));
    return torch::nn::functional::cross_entropy(logits.flatten(0, 1), ids.narrow(1, 1, ids.size(1) - 1).flatten(),
                                                torch::nn::functional::CrossEntropyFuncOptions().ignore_index(0));
  }

  torch::nn::Embedding embedding{20, 6};
  torch::nn::GRU gru{torch::nn::GRUOptions(6, 8).batch_first(true)};
  torch::nn::Linear output{8, 20};
};
TORCH_MODULE(LanguageModel);

struct LanguageTraining {
  LanguageTraining() {
    model->to(device());
    test::trainer::set_weights(*model, 7);
  }
  LanguageModel model;
  torch::optim::AdamW adamw{model->parameters(), torch::optim::AdamWOptions(0.02)};
};

// The pretended device has no recurrent networks.
TEST(HostOnlyTrainerModels, TrainsALanguageModelAsALoopByHand) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    const Phrases phrases;
    const auto pad = [](const std::vector<data::TokenSample>& texts) { return data::pad_tokens(texts, 0); };
    data::DataLoaderOf loader(phrases, pad, {.batch_size = batch_size(communicator) / 4, .workers = 1},
                              context->shard());
    LanguageTraining by_hand;
    {
      GradientSynchronizer synchronizer{*by_hand.model, communicator};
      for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
        for (auto& batch : loader.epoch(epoch)) {
          by_hand.model->loss(batch).backward();
          synchronizer.wait();
          by_hand.adamw.step();
          synchronizer.zero_grad();
        }
      }
    }
    LanguageTraining trained;
    Trainer trainer{*context, trained.model, trained.adamw, {.epochs = 2, .tensor_board = false}};
    trainer.fit(loader, [&](const data::TokenBatch& batch) { return trained.model->loss(batch); });
    EXPECT_TRUE(at::equal(at::cat(weights_of(*trained.model)), at::cat(weights_of(*by_hand.model))));
  });
}

// ---- Several modules

struct Networks {
  explicit Networks(torch::nn::Sequential the_discriminator = small_model(9))
      : discriminator(std::move(the_discriminator)) {}

  torch::nn::Sequential generator = small_model(8);
  torch::nn::Sequential discriminator;
  torch::optim::AdamW generator_adam{generator->parameters(), torch::optim::AdamWOptions(0.01)};
  torch::optim::AdamW discriminator_adam{discriminator->parameters(), torch::optim::AdamWOptions(0.02)};

  at::Tensor fake(const at::Tensor& real) { return at::cat({generator->forward(real), real.narrow(1, 0, 3)}, 1); }
  at::Tensor discriminator_loss(const at::Tensor& real, const at::Tensor& fake) {
    return (discriminator->forward(real) - 1).square().mean() + discriminator->forward(fake.detach()).square().mean();
  }
  at::Tensor generator_loss(const at::Tensor& fake) { return (discriminator->forward(fake) - 1).square().mean(); }

  at::Tensor everything() const {
    std::vector<at::Tensor> parts;
    for (const auto& tensor : generator->parameters()) parts.push_back(tensor.detach().cpu().flatten());
    for (const auto& tensor : discriminator->parameters()) parts.push_back(tensor.detach().cpu().flatten());
    return at::cat(parts);
  }
};

void expect_equal_pairs(Communicator& communicator, Precision precision) {
  TestRun run{communicator};
  const auto context = run.start();
  const Waves waves;
  data::DataLoader loader{waves, {.batch_size = 4, .workers = 1, .remainder = data::Remainder::drop}, context->shard()};
  // The casts of weights do not outlive a guard.
  const auto forward = [&](const auto& compute) {
    std::optional<Autocast> autocast;
    if (precision == Precision::bfloat16) autocast.emplace(device());
    return compute();
  };
  Networks by_hand;
  {
    const auto second = communicator.split(0, communicator.rank());
    GradientSynchronizer generator{*by_hand.generator, communicator};
    GradientSynchronizer discriminator{*by_hand.discriminator, *second};
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      for (auto& batch : loader.epoch(epoch)) {
        const auto real = batch.images.to(device()).flatten(1);
        const auto fake = forward([&] { return by_hand.fake(real); });
        forward([&] { return by_hand.discriminator_loss(real, fake); }).backward();
        discriminator.wait();
        by_hand.discriminator_adam.step();
        discriminator.zero_grad();
        for (auto& parameter : by_hand.discriminator->parameters()) parameter.set_requires_grad(false);
        forward([&] { return by_hand.generator_loss(fake); }).backward();
        for (auto& parameter : by_hand.discriminator->parameters()) parameter.set_requires_grad(true);
        generator.wait();
        by_hand.generator_adam.step();
        generator.zero_grad();
      }
    }
  }
  Networks trained;
  Trainer trainer{*context, {.epochs = 2, .precision = precision, .tensor_board = false}};
  auto& generator = trainer.add("generator", trained.generator, trained.generator_adam);
  auto& discriminator = trainer.add("discriminator", trained.discriminator, trained.discriminator_adam);
  trainer.fit(loader, [&](const data::Batch& batch) {
    const auto real = batch.images.to(device()).flatten(1);
    const auto fake = trained.fake(real);
    const auto discriminator_loss = trained.discriminator_loss(real, fake);
    discriminator.update(discriminator_loss);
    const auto generator_loss = trained.generator_loss(fake);
    generator.update(generator_loss);
    return StepResult::updated({{"generator", generator_loss}, {"discriminator", discriminator_loss}});
  });
  EXPECT_TRUE(at::equal(trained.everything(), by_hand.everything()));
  EXPECT_TRUE(trainer.state().metrics.contains("generator"));
}

TEST(TrainerModels, TrainsAnAdversarialPairAsALoopByHand) {
  on_ranks([](Communicator& communicator) {
    expect_equal_pairs(communicator, Precision::float32);
    // LibTorch's cache of casts, by which it adds gradients in bfloat16, is one for all threads: ranks would clear it
    // for each other.
    if (communicator.world_size() == 1) expect_equal_pairs(communicator, Precision::bfloat16);
  });
}

TEST(TrainerModels, TrainsTwoModulesByOneLoss) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    const Waves waves;
    data::DataLoader loader{
        waves, {.batch_size = 4, .workers = 1, .remainder = data::Remainder::drop}, context->shard()};
    const auto loss_of = [](Networks& networks, const data::Batch& batch) {
      const auto real = batch.images.to(device()).flatten(1);
      return networks.generator_loss(networks.fake(real)) + networks.discriminator->forward(real).square().mean();
    };
    Networks by_hand;
    {
      const auto second = communicator.split(0, communicator.rank());
      GradientSynchronizer generator{*by_hand.generator, communicator};
      GradientSynchronizer discriminator{*by_hand.discriminator, *second};
      for (auto& batch : loader.epoch(0)) {
        loss_of(by_hand, batch).backward();
        generator.wait();
        discriminator.wait();
        by_hand.generator_adam.step();
        by_hand.discriminator_adam.step();
        generator.zero_grad();
        discriminator.zero_grad();
      }
    }
    Networks trained;
    Trainer trainer{*context, {.tensor_board = false}};
    trainer.add("generator", trained.generator, trained.generator_adam);
    trainer.add("discriminator", trained.discriminator, trained.discriminator_adam);
    trainer.fit(loader, [&](const data::Batch& batch) { return loss_of(trained, batch); });
    EXPECT_TRUE(at::equal(trained.everything(), by_hand.everything()));
  });
}

// A pair whose discriminator has a batch norm, through which the generator's gradients pass, on samples of which the
// last step has 7: ranks have different numbers of them.
struct NormedPair {
  static torch::nn::Sequential discriminator() {
    torch::nn::Sequential model{torch::nn::Linear(6, 8), torch::nn::BatchNorm1d(8), torch::nn::Linear(8, 3)};
    model->to(device());
    test::trainer::set_weights(*model, 9);
    return model;
  }

  Waves waves{23};
  Networks networks{discriminator()};
  torch::optim::SGD generator_sgd{networks.generator->parameters(), torch::optim::SGDOptions(0.1)};
  torch::optim::SGD discriminator_sgd{networks.discriminator->parameters(), torch::optim::SGDOptions(0.1)};
};

at::Tensor train_normed_pair_in_one_process(std::int64_t accumulate, std::uint64_t global_batch) {
  NormedPair pair;
  data::DataLoader loader{pair.waves,
                          {.batch_size = global_batch, .workers = 1, .seed = 3, .remainder = data::Remainder::exact}};
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    std::vector<at::Tensor> batches;
    for (auto& batch : loader.epoch(epoch)) batches.push_back(batch.images.to(device()).flatten(1).clone());
    for (std::size_t index = 0; index < batches.size(); ++index) {
      const bool is_last = accumulate == 1 || index + 1 == batches.size();
      const double share = accumulate == 1 ? 1.0 : static_cast<double>(batches[index].size(0)) / 23;
      const auto fake = pair.networks.fake(batches[index]);
      const auto train = [&](const at::Tensor& loss, torch::nn::Sequential& module, torch::optim::SGD& sgd) {
        const auto inputs = module->parameters();
        (loss * share).backward({}, std::nullopt, false, inputs);
        if (!is_last) return;
        sgd.step();
        sgd.zero_grad();
      };
      train(pair.networks.discriminator_loss(batches[index], fake), pair.networks.discriminator,
            pair.discriminator_sgd);
      train(pair.networks.generator_loss(fake), pair.networks.generator, pair.generator_sgd);
    }
  }
  return pair.networks.everything();
}

TEST(TrainerModels, WeighsSamplesInTheSyncBatchNormOfAnotherPart) {
  on_ranks([](Communicator& communicator) {
    for (const std::int64_t accumulate : {1, 2}) {
      TestRun run{communicator};
      const auto context = run.start();
      NormedPair pair;
      data::DataLoader loader{
          pair.waves,
          {.batch_size = batch_size(communicator), .workers = 1, .seed = 3, .remainder = data::Remainder::exact},
          context->shard()};
      Trainer trainer{*context,
                      {.epochs = 2, .accumulate = accumulate, .sync_batch_norm = true, .tensor_board = false}};
      auto& generator = trainer.add("generator", pair.networks.generator, pair.generator_sgd);
      auto& discriminator = trainer.add("discriminator", pair.networks.discriminator, pair.discriminator_sgd);
      trainer.fit(loader, [&](const data::Batch& batch) {
        const auto real = batch.images.to(device()).flatten(1);
        const auto fake = pair.networks.fake(real);
        discriminator.update(pair.networks.discriminator_loss(real, fake));
        generator.update(pair.networks.generator_loss(fake));
        return StepResult::updated({});
      });
      const auto global_batch = batch_size(communicator) * static_cast<std::uint64_t>(communicator.world_size());
      const auto expected = train_normed_pair_in_one_process(accumulate, global_batch);
      const auto trained = pair.networks.everything();
      EXPECT_TRUE(at::allclose(trained, expected, 1e-4, 1e-6))
          << accumulate << ": " << (trained - expected).abs().max().item<double>();
    }
  });
}

TEST(TrainerModels, HaveNoWireFormatTogether) {
  on_ranks([](Communicator& communicator) {
    TestRun run{communicator};
    const auto context = run.start();
    Networks networks;
    Trainer trainer{*context, {.synchronizer = {.wire_format = std::make_shared<HalfPrecisionWireFormat>()}}};
    trainer.add("generator", networks.generator, networks.generator_adam);
    EXPECT_THAT(message_of<UsageError>(
                    [&] { trainer.add("discriminator", networks.discriminator, networks.discriminator_adam); }),
                AllOf(HasSubstr("'bfloat16'"), HasSubstr("'discriminator'")));
  });
}

}  // namespace
}  // namespace libtrain
