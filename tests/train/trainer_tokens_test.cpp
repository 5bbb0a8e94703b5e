#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/data_loader.hpp>
#include <libtrain/data/token_batch.hpp>
#include <libtrain/train/trainer.hpp>

#include <tests/support/device.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>
#include <tests/train/trainer_runs.hpp>

namespace libtrain {
namespace {

using test::device;
using test::message_of;
using test::on_ranks;
using test::trainer::TestRun;
using ::testing::HasSubstr;

constexpr std::int64_t kEpochsOfTexts = 3;
constexpr std::uint64_t kTokensOfAllRanks = 24;

// Text i has 1 to 5 tokens below 20 and one of three classes.
class FewTexts : public data::DatasetOf<data::TokenSample> {
 public:
  std::uint64_t size() const override { return 61; }
  data::TokenSample get(std::uint64_t index, data::SampleRandom& /*random*/) const override {
    data::TokenSample text{.label = static_cast<std::int64_t>(index % 3)};
    for (std::uint64_t place = 0; place < 1 + index * index % 6; ++place) {
      text.ids.push_back(static_cast<std::int64_t>((index + 7 * place) % 20));
    }
    return text;
  }

  std::vector<std::uint32_t> lengths() const {
    std::vector<std::uint32_t> lengths;
    for (std::uint64_t index = 0; index < size(); ++index) {
      lengths.push_back(static_cast<std::uint32_t>(sample(index).ids.size()));
    }
    return lengths;
  }
};

data::TokenBatch pad_few(const std::vector<data::TokenSample>& texts) {
  return data::pad_tokens(texts, 0);
}

struct MeanOfWordsImpl : torch::nn::Module {
  MeanOfWordsImpl() {
    register_module("embedding", embedding);
    register_module("output", output);
    to(device());
    test::trainer::set_weights(*this, 5);
  }

  at::Tensor loss(const data::TokenBatch& batch) {
    const auto mask = batch.attention_mask.unsqueeze(2).to(at::kFloat);
    const auto means = (embedding(batch.ids) * mask).sum(1) / mask.sum(1);
    return torch::nn::functional::cross_entropy(output(means), batch.labels);
  }

  at::Tensor weights() const {
    std::vector<at::Tensor> flat;
    for (const auto& parameter : parameters()) flat.push_back(parameter.detach().cpu().flatten());
    return at::cat(flat);
  }

  torch::nn::Embedding embedding{20, 5};
  torch::nn::Linear output{5, 3};
};
TORCH_MODULE(MeanOfWords);

data::LoaderOptions loader_options(const FewTexts& texts, std::uint64_t ranks, data::Remainder remainder) {
  return {.max_tokens = kTokensOfAllRanks / ranks,
          .lengths = texts.lengths(),
          .token_count = remainder == data::Remainder::drop ? data::TokenCount::padded : data::TokenCount::packed,
          .workers = 1,
          .seed = 3,
          .remainder = remainder};
}

torch::optim::SGD make_sgd(const torch::nn::Module& model) {
  return torch::optim::SGD{model.parameters(), torch::optim::SGDOptions(0.5).momentum(0.9)};
}

// In one process without a trainer, with all tokens of a step in one batch; of each `accumulate` batches the mean over
// their texts.
std::pair<at::Tensor, std::int64_t> train_in_one_process(std::size_t accumulate, data::Remainder remainder) {
  const FewTexts texts;
  data::DataLoaderOf loader(texts, pad_few, loader_options(texts, 1, remainder));
  MeanOfWords model;
  auto sgd = make_sgd(*model);
  std::int64_t steps = 0;
  for (std::uint64_t epoch = 0; epoch < kEpochsOfTexts; ++epoch) {
    std::vector<data::TokenBatch> batches;
    for (auto& batch : loader.epoch(epoch)) batches.push_back(batch);
    for (std::size_t first = 0; first < batches.size(); first += accumulate, ++steps) {
      const std::vector<data::TokenBatch> of_step(
          batches.begin() + static_cast<std::ptrdiff_t>(first),
          batches.begin() + static_cast<std::ptrdiff_t>(std::min(first + accumulate, batches.size())));
      std::int64_t count = 0;
      for (const auto& batch : of_step) count += batch.labels.size(0);
      sgd.zero_grad();
      for (auto batch : of_step) {
        visit_tensors(batch, [](at::Tensor& tensor) {
          if (tensor.defined()) tensor = tensor.to(device());
        });
        const double share = static_cast<double>(batch.labels.size(0)) / static_cast<double>(count);
        (model->loss(batch) * share).backward();
      }
      sgd.step();
    }
  }
  return {model->weights(), steps};
}

struct InterruptedTexts {};

struct TrainedTexts {
  at::Tensor weights;
  std::int64_t steps = 0;
  std::int64_t planned = 0;  // for the schedule
};

// On all ranks, from the last checkpoint of the run if there is one; throws InterruptedTexts after a step.
TrainedTexts train_together(TestRun& run, std::int64_t accumulate, data::Remainder remainder,
                            const TrainerCheckpoints& checkpoints, std::int64_t stop_after = -1) {
  const auto context = run.start();
  const FewTexts texts;
  data::DataLoaderOf loader(texts, pad_few,
                            loader_options(texts, static_cast<std::uint64_t>(context->world_size()), remainder),
                            context->shard());
  MeanOfWordsImpl model;  // a module without a shared_ptr
  auto sgd = make_sgd(model);
  TrainedTexts trained;
  const auto schedule = [&](const TrainingLength& length) {
    trained.planned = length.steps;
    return [](std::int64_t) { return 1.0; };
  };
  Trainer trainer{*context,
                  model,
                  sgd,
                  {.epochs = kEpochsOfTexts,
                   .accumulate = accumulate,
                   .schedule = schedule,
                   .checkpoints = checkpoints,
                   .tensor_board = false,
                   .mlflow = false}};
  trainer.after_step([&](const TrainingState& state) {
    if (state.step == stop_after) throw InterruptedTexts{};
  });
  trainer.fit(loader, [&](const data::TokenBatch& batch) { return model.loss(batch); });
  trained.weights = model.weights();
  trained.steps = trainer.state().step;
  return trained;
}

// Ranks have different numbers of texts in nearly every step, and in the last one of an epoch possibly none.
TEST(TrainerTokens, AnyNumberOfRanksTrainsAsOneProcess) {
  on_ranks([](Communicator& communicator) {
    for (const auto remainder : {data::Remainder::exact, data::Remainder::drop}) {
      for (const std::int64_t accumulate : {1, 2}) {
        const auto [expected, steps] = train_in_one_process(static_cast<std::size_t>(accumulate), remainder);
        TestRun run{communicator};
        const auto trained = train_together(run, accumulate, remainder, {.enabled = false});
        EXPECT_EQ(trained.steps, steps);
        EXPECT_EQ(trained.planned, steps);
        EXPECT_TRUE(at::allclose(trained.weights, expected, 1e-5, 1e-6))
            << (trained.weights - expected).abs().max().item<double>();
      }
    }
  });
}

// In the first epoch and in another one.
TEST(TrainerTokens, ContinueBitForBitWithinAnEpoch) {
  on_ranks([](Communicator& communicator) {
    const TrainerCheckpoints checkpoints{.every_epochs = 0, .every_steps = 2};
    TestRun undisturbed{communicator};
    const auto expected = train_together(undisturbed, 1, data::Remainder::exact, checkpoints);
    TestRun run{communicator};
    for (const std::int64_t step : {3, 13}) {
      EXPECT_THROW(train_together(run, 1, data::Remainder::exact, checkpoints, step), InterruptedTexts);
      communicator.barrier();
    }
    const auto resumed = train_together(run, 1, data::Remainder::exact, checkpoints);
    EXPECT_EQ(resumed.steps, expected.steps);
    EXPECT_TRUE(at::equal(resumed.weights, expected.weights));
  });
}

// The last step of an epoch has other numbers of texts in each epoch. Returns a seed with which that of epoch `wanted`,
// and no other of kEpochsOfTexts, has fewer texts than there are ranks.
std::uint64_t seed_of_a_short_epoch(std::int64_t wanted, const Context& context) {
  const FewTexts texts;
  const auto ranks = static_cast<std::uint64_t>(context.world_size());
  auto options = loader_options(texts, ranks, data::Remainder::exact);
  for (std::uint64_t seed = 0;; ++seed) {
    options.seed = seed;
    const data::DataLoaderOf loader(texts, pad_few, options, context.shard());
    std::vector<std::int64_t> found;
    for (std::uint64_t epoch = 0; epoch < kEpochsOfTexts; ++epoch) {
      const auto last = loader.sampler().samples(loader.sampler().steps(0, epoch) - 1, 0, epoch);
      if (last.of_all < ranks) found.push_back(static_cast<std::int64_t>(epoch));
    }
    if (found == std::vector{wanted}) return seed;
  }
}

struct Lengths {
  std::int64_t epochs = kEpochsOfTexts;
  std::int64_t max_steps = 0;
};

// Trains two parts; returns the number of steps, or throws.
std::int64_t train_two_parts(Context& context, std::uint64_t seed, const Lengths& lengths, std::int64_t& batches,
                             const TrainerCheckpoints& checkpoints = {.enabled = false}) {
  const FewTexts texts;
  auto options = loader_options(texts, static_cast<std::uint64_t>(context.world_size()), data::Remainder::exact);
  options.seed = seed;
  data::DataLoaderOf loader(texts, pad_few, options, context.shard());
  MeanOfWordsImpl first;  // modules without a shared_ptr
  MeanOfWordsImpl second;
  auto first_sgd = make_sgd(first);
  auto second_sgd = make_sgd(second);
  Trainer trainer{context,
                  {.epochs = lengths.epochs,
                   .max_steps = lengths.max_steps,
                   .checkpoints = checkpoints,
                   .tensor_board = false,
                   .mlflow = false}};
  trainer.add("first", first, first_sgd);
  trainer.add("second", second, second_sgd);
  trainer.fit(loader, [&](const data::TokenBatch& batch) {
    ++batches;
    return first.loss(batch) + second.loss(batch);
  });
  return trainer.state().step;
}

TEST(TrainerTokens, RefuseALaterEpochThatEndsWithTooFewTextsAtTheStart) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    TestRun run{communicator};
    const auto context = run.start();
    const auto seed = seed_of_a_short_epoch(kEpochsOfTexts - 1, *context);
    std::int64_t batches = 0;
    EXPECT_THAT(message_of<UsageError>([&] { train_two_parts(*context, seed, {}, batches); }),
                HasSubstr(text("The last batch of epoch ", kEpochsOfTexts, " has ")));
    EXPECT_EQ(batches, 0);
    const auto steps = train_two_parts(*run.start(), seed, {.epochs = kEpochsOfTexts - 1}, batches);
    EXPECT_EQ(batches, steps);
    EXPECT_EQ(train_two_parts(*run.start(), seed, {.max_steps = steps}, batches), steps);
  });
}

// An epoch that one rank has trained, and that ends with too few texts for more ranks.
TEST(TrainerTokens, RefuseNoEpochThatIsBehindAResumedRun) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    TestRun run{communicator};
    const auto context = run.start();
    const auto seed = seed_of_a_short_epoch(0, *context);
    std::int64_t batches = 0;
    EXPECT_THAT(message_of<UsageError>([&] { train_two_parts(*context, seed, {}, batches); }),
                HasSubstr("The last batch of epoch 1 has "));
    EXPECT_EQ(batches, 0);
    const auto alone = communicator.split(communicator.rank(), 0);
    TestRun begun{*alone};
    const auto steps = train_two_parts(*begun.start(), seed, {.epochs = 1}, batches, {});
    const auto begun_by_first = communicator.broadcast_bytes(begun.checkpoints().string(), 0);
    EXPECT_GT(train_two_parts(*run.start({}, begun_by_first), seed, {}, batches, {}), 2 * steps);
    EXPECT_EQ(train_two_parts(*run.start(), seed, {}, batches, {}), batches);
    communicator.barrier();
  });
}

}  // namespace
}  // namespace libtrain
