#include <libtrain/models/roberta/roberta.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <libtrain/base/error.hpp>
#include <libtrain/train/autocast.hpp>

#include <tests/support/fresh_seed.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::models {
namespace {

using test::message_of;
using ::testing::HasSubstr;

std::int64_t number_of_parameters(const torch::nn::Module& model) {
  std::int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}

RobertaOptions small(RobertaOptions options = {.vocabulary = 100}) {
  return roberta_tiny(options);
}

PackedTexts texts_of(const std::vector<std::int64_t>& lengths) {
  std::int64_t tokens = 0;
  for (const auto length : lengths) tokens += length;
  return {torch::randint(4, 100, {tokens}, torch::kLong), lengths};
}

TEST(Roberta, HasThePublishedNumbersOfParameters) {
  EXPECT_EQ(number_of_parameters(*RobertaForClassification(roberta_base())), 124'647'170);
  // Of one layer: 39,000,576 in the embeddings, 7,087,872 in the layer, 642,393 in the head.
  EXPECT_EQ(number_of_parameters(*RobertaForMaskedLm(roberta_options("base", {.layers = 1}))), 124'697'433);
}

TEST(Roberta, LargeHasThePublishedNumberOfParameters) {
  auto options = roberta_large({.classes = 3});
  EXPECT_EQ(options.layers, 24);
  options.layers = 1;
  // 355,361,794 for two classes, 23 layers of 12,596,224 less, and a class of 1,025 more.
  EXPECT_EQ(number_of_parameters(*RobertaForClassification(options)), 355'361'794 - 23 * 12'596'224 + 1'025);
}

TEST(Roberta, BeginsAsTransformersDoes) {
  torch::manual_seed(1);
  const RobertaForMaskedLm model(small());
  for (const auto& item : model->named_parameters()) {
    const auto& name = item.key();
    const auto numbers = item.value().detach();
    const bool is_norm = name.find("LayerNorm") != std::string::npos || name.find("layer_norm") != std::string::npos;
    if (name.ends_with("bias")) {
      EXPECT_EQ(numbers.abs().max().item<float>(), 0) << name;
    } else if (is_norm) {
      EXPECT_TRUE(numbers.eq(1).all().item<bool>()) << name;
    } else {
      const bool has_padding = name.find("word_") != std::string::npos || name.find("position_") != std::string::npos;
      EXPECT_EQ(numbers[-1].eq(0).all().item<bool>(), false) << name;
      if (numbers.size(0) > 1) {
        EXPECT_EQ(numbers[1].eq(0).all().item<bool>(), has_padding) << name;
      }
      if (numbers.size(0) > 10) {
        EXPECT_NEAR(numbers.std().item<double>(), 0.02, 0.001) << name;
      }
    }
  }
}

TEST(Roberta, DrawsTheSameHeadIfTheEncoderIsLoaded) {
  auto& torch_settings = at::globalContext();
  torch_settings.setDeterministicAlgorithms(true, false);  // undefined numbers are NaN
  const auto heads_are_equal = [](auto make) {
    torch::manual_seed(1);
    const auto drawn = make(true);
    torch::manual_seed(1);
    const auto loaded = make(false);
    EXPECT_TRUE(
        loaded->named_parameters()["roberta.encoder.layer.0.output.dense.weight"].isnan().all().template item<bool>());
    for (const auto& item : drawn->named_parameters()) {
      const bool is_matrix = item.value().dim() == 2;
      if (is_matrix && item.key().starts_with("roberta.")) continue;
      EXPECT_TRUE(at::equal(item.value(), loaded->named_parameters()[item.key()])) << item.key();
    }
  };
  heads_are_equal([](bool draw) { return RobertaForClassification(small({.vocabulary = 100, .draw_encoder = draw})); });
  heads_are_equal([](bool draw) { return RobertaForMaskedLm(small({.vocabulary = 100, .draw_encoder = draw})); });
  torch_settings.setDeterministicAlgorithms(false, false);
}

TEST(Roberta, BeginsWithNumbersOfANormalDistribution) {
  const test::FreshSeed seed;
  torch::manual_seed(seed.value);
  const RobertaForClassification model(small({.vocabulary = 4001}));
  const auto numbers = model->named_parameters()["roberta.embeddings.word_embeddings.weight"]
                           .detach()
                           .slice(0, 2)
                           .flatten()
                           .to(torch::kDouble)
                           .div(0.02);
  const auto count = static_cast<double>(numbers.numel());
  EXPECT_LT(std::abs(numbers.mean().item<double>()) * std::sqrt(count), 5);
  EXPECT_LT(std::abs(numbers.pow(4).mean().item<double>() - 3) * std::sqrt(count / 96), 5);
  // Neighbours, and numbers of one pair, which lie 16 apart, are not correlated.
  for (const std::int64_t distance : {1, 16, 32}) {
    const auto product = (numbers.slice(0, distance) * numbers.slice(0, 0, -distance)).mean().item<double>();
    EXPECT_LT(std::abs(product) * std::sqrt(count), 5) << distance;
  }
  // The largest difference from the distribution, of Kolmogorov and Smirnov: above 2.3 once in 20,000 times.
  const auto sorted = std::get<0>(numbers.sort());
  const auto expected = torch::special::ndtr(sorted);
  const auto places = torch::arange(1, numbers.numel() + 1, torch::kDouble) / count;
  EXPECT_LT((expected - places).abs().max().item<double>() * std::sqrt(count), 2.3);

  const auto threads = at::get_num_threads();
  at::set_num_threads(threads + 1);
  torch::manual_seed(seed.value);
  const RobertaForClassification same(small({.vocabulary = 4001}));
  at::set_num_threads(threads);
  for (std::size_t k = 0; k < model->parameters().size(); ++k) {
    EXPECT_TRUE(at::equal(model->parameters()[k], same->parameters()[k])) << k;
  }
}

TEST(Roberta, RefusesTextsThatItCannotRead) {
  RobertaForClassification model(small());
  EXPECT_EQ(model->options().max_tokens(), 128);
  EXPECT_NO_THROW(model->forward(texts_of({128, 1})));
  const auto refused = [&](const PackedTexts& texts) {
    return message_of<std::invalid_argument>([&] { model->forward(texts); });
  };
  EXPECT_THAT(refused(texts_of({3, 129})),
              HasSubstr("Text 1 of the batch has 129 tokens, but the model has positions for 128."));
  EXPECT_THAT(refused(texts_of({3, 0})), HasSubstr("Text 1 of the batch has 0 tokens"));
  auto texts = texts_of({3, 4});
  texts.ids[5] = 100;
  EXPECT_THAT(refused(texts),
              HasSubstr("Token 5 of the batch has the id 100, but the model's vocabulary has ids from 0 to 99."));
  texts.ids[5] = -1;
  EXPECT_THAT(refused(texts), HasSubstr("has the id -1"));
  texts.ids[5] = 7;
  texts.lengths.back() = 5;
  EXPECT_THAT(refused(texts), HasSubstr("have 8 tokens together, but 7 ids"));
}

TEST(Roberta, RefusesTokensOutOfOrder) {
  RobertaForMaskedLm model(small());
  const auto texts = texts_of({3, 4});
  EXPECT_EQ(model->forward(texts, torch::tensor({2, 3, 6})).sizes(), (std::vector<std::int64_t>{3, 100}));
  const auto refused = [&](std::vector<std::int64_t> tokens) {
    return message_of<std::invalid_argument>([&] { model->forward(texts, torch::tensor(tokens)); });
  };
  EXPECT_THAT(refused({2, 2}), HasSubstr("Token 2 follows token 2"));
  EXPECT_THAT(refused({4, 3}), HasSubstr("Token 3 follows token 4"));
  EXPECT_THAT(refused({7}), HasSubstr("Token 7 was asked for, but the batch has 7."));
}

TEST(Roberta, HasGradientsWithoutAMaskedToken) {
  RobertaForMaskedLm model(small());
  for (const auto type : {at::kFloat, at::kDouble}) {
    model->to(type);
    model->zero_grad();
    const auto none = torch::empty({0}, torch::kLong);
    const auto loss = masked_lm_loss(model->forward(texts_of({3, 4}), none), none);
    EXPECT_EQ(loss.item<double>(), 0);
    loss.backward();
    for (const auto& item : model->named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      EXPECT_EQ(item.value().grad().abs().max().item<double>(), 0) << item.key();
    }
  }
}

TEST(Roberta, RefusesSizesThatItCannotHave) {
  const auto refused = [](const RobertaOptions& options) {
    return message_of<std::invalid_argument>([&] { RobertaForClassification{options}; });
  };
  EXPECT_THAT(refused({.hidden = 100, .heads = 12}), HasSubstr("hidden is 100 and heads is 12"));
  EXPECT_THAT(refused({.layers = 0}), HasSubstr("at least 1"));
  EXPECT_THAT(refused({.positions = 2}), HasSubstr("positions is 2"));
  EXPECT_THAT(refused({.dropout = 1}), HasSubstr("a dropout is 1"));
  EXPECT_THAT(message_of<std::invalid_argument>([] { roberta_options("huge"); }), HasSubstr("base, large and tiny"));
}

TEST(Roberta, ReadsOffsetsAndMasks) {
  const auto ids = torch::tensor({{5, 6, 1}, {1, 7, 1}});
  const auto unpadded = unpadded_texts(ids, ids.ne(1));
  EXPECT_TRUE(unpadded.ids.equal(torch::tensor({5, 6, 7})));
  EXPECT_EQ(unpadded.lengths, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(unpadded_texts(ids).lengths, (std::vector<std::int64_t>{3, 3}));
  EXPECT_EQ(packed_texts(unpadded.ids, torch::tensor({0, 2, 3})).lengths, unpadded.lengths);
  EXPECT_TRUE(unpadded.first_tokens().equal(torch::tensor({0, 2})));
  EXPECT_THROW(packed_texts(unpadded.ids, torch::tensor({0, 2})), std::invalid_argument);
  EXPECT_THROW(unpadded_texts(ids, torch::ones({2, 2})), std::invalid_argument);
  EXPECT_THAT(message_of<std::invalid_argument>([] { packed_texts(torch::arange(8), torch::tensor({0, 5, 3, 8})); }),
              HasSubstr("go from 5 to 3 at text 1."));
  EXPECT_THROW(packed_texts(unpadded.ids, torch::tensor({0, 2, 2, 3})), std::invalid_argument);
}

TEST(Roberta, RefusesMaskedIdsThatAreNotPadding) {
  const auto ids = torch::tensor({{5, 6, 7}, {5, 1, 1}});
  const auto mask = torch::tensor({{1, 0, 1}, {1, 0, 0}});
  EXPECT_THAT(message_of<std::invalid_argument>([&] { unpadded_texts(ids, mask); }),
              HasSubstr("mask is 0 for 1 tokens whose id is not that of padding, 1."));
  EXPECT_THROW(unpadded_texts(ids, mask, 6), std::invalid_argument);
  EXPECT_EQ(unpadded_texts(ids.slice(0, 1), mask.slice(0, 1)).lengths, (std::vector<std::int64_t>{1}));
  RobertaForClassification model(small({.vocabulary = 100, .pad_id = 0}));
  EXPECT_THROW(model->forward(ids.slice(0, 1), mask.slice(0, 1)), std::invalid_argument);
}

TEST(Roberta, ReadsPaddingOnTheLeftAndTransposedTensors) {
  torch::manual_seed(4);
  const auto right = torch::tensor({{5, 6, 1}, {8, 7, 9}}), left = torch::tensor({{1, 5, 6}, {8, 7, 9}});
  RobertaForClassification classifier(small());
  classifier->eval();
  const auto logits = classifier->forward(right, right.ne(1));
  EXPECT_TRUE(at::equal(classifier->forward(left, left.ne(1)), logits));
  const auto transposed = right.t().contiguous().t();
  EXPECT_TRUE(at::equal(classifier->forward(transposed, transposed.ne(1)), logits));
  RobertaForMaskedLm model(small());
  model->eval();
  const auto of_tokens = model->forward(right, right.ne(1));
  EXPECT_TRUE(at::equal(model->forward(left, left.ne(1))[0].slice(0, 1), of_tokens[0].slice(0, 0, 2)));
  const auto mask = right.ne(1).t().contiguous().t();
  EXPECT_TRUE(at::equal(model->forward(transposed, mask), of_tokens));
}

TEST(Roberta, DropsOthersInEachStep) {
  // Only the probabilities of attention, whose seeds the layers draw.
  RobertaForClassification model(small({.vocabulary = 100, .dropout = 0, .attention_dropout = 0.5}));
  const auto texts = texts_of({30, 20});
  torch::manual_seed(3);
  const auto first = model->forward(texts), second = model->forward(texts);
  torch::manual_seed(3);
  const auto again = model->forward(texts);
  EXPECT_FALSE(at::equal(first, second));
  EXPECT_TRUE(at::equal(first, again));
}

TEST(Roberta, DropsBeforeEachMatrixOfTheClassifier) {
  const test::FreshSeed seed;
  torch::manual_seed(seed.value);
  constexpr std::int64_t kTexts = 2000;
  constexpr double kDropped = 0.25, kSmall = 1e-3;
  RobertaForClassification model(
      small({.vocabulary = 100, .dropout = 0, .attention_dropout = 0, .classifier_dropout = kDropped, .classes = 1}));
  {
    const at::NoGradGuard no_grad;
    auto parameters = model->named_parameters();
    parameters["classifier.dense.weight"].fill_(kSmall);  // a sum of states, in the range where tanh is linear
    parameters["classifier.out_proj.weight"].zero_().select(1, 0).fill_(1 / kSmall);
  }
  const auto logits = model->forward({torch::full({kTexts}, 7), std::vector<std::int64_t>(kTexts, 1)}).detach();
  const auto is_dropped = logits.eq(0);
  // Five standard deviations.
  EXPECT_NEAR(is_dropped.to(at::kDouble).mean().item<double>(), kDropped, 0.049);
  // The squares of 64 normed states add up to 64.
  const auto sums = logits.masked_select(is_dropped.logical_not()).to(at::kDouble) * (1 - kDropped);
  EXPECT_NEAR(sums.std().item<double>() / std::sqrt(64 * kDropped / (1 - kDropped)), 1, 0.1);
}

// The loss and the gradients of all parameters, of a step in train mode.
std::vector<at::Tensor> train_step(RobertaForClassification& model, const PackedTexts& texts, const at::Tensor& labels,
                                   at::ScalarType type) {
  torch::manual_seed(5);
  model->zero_grad();
  at::Tensor loss;
  {
    const Autocast autocast{c10::kCPU, {.type = type}};
    loss = classification_loss(RobertaTask::single_label, model->forward(texts), labels);
  }
  loss.backward();
  std::vector<at::Tensor> results{loss.detach()};
  for (const auto& parameter : model->parameters()) {
    EXPECT_EQ(parameter.grad().defined(), parameter.requires_grad());
    if (parameter.requires_grad()) results.push_back(parameter.grad().clone());
  }
  return results;
}

void copy_weights(torch::nn::Module& from, torch::nn::Module& to) {
  const at::NoGradGuard no_grad;
  const auto weights = from.parameters();
  const auto copies = to.parameters();
  for (std::size_t k = 0; k < weights.size(); ++k) copies[k].copy_(weights[k]);
}

TEST(Roberta, RecomputedLayersHaveTheSameGradientsToTheLastBit) {
  const test::FreshSeed seed;
  torch::manual_seed(seed.value);
  RobertaForClassification keeps(small()), recomputes(small({.vocabulary = 100, .recompute_layers = true}));
  copy_weights(*keeps, *recomputes);
  const auto texts = texts_of({17, 3, 40, 17, 1});
  const auto labels = torch::randint(2, {5}, torch::kLong);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto kept = train_step(keeps, texts, labels, type);
    const auto recomputed = train_step(recomputes, texts, labels, type);
    ASSERT_EQ(kept.size(), recomputed.size());
    for (std::size_t k = 0; k < kept.size(); ++k) EXPECT_TRUE(at::equal(kept[k], recomputed[k])) << type << " " << k;
  }
}

TEST(Roberta, RecomputedLayersWithFrozenParametersHaveTheSameGradients) {
  torch::manual_seed(8);
  RobertaForClassification keeps(small()), recomputes(small({.vocabulary = 100, .recompute_layers = true}));
  copy_weights(*keeps, *recomputes);
  const auto texts = texts_of({17, 3, 40});
  const auto labels = torch::randint(2, {3}, torch::kLong);
  const std::string layer = "roberta.encoder.layer.";
  for (const auto& frozen : {std::vector<std::string>{layer + "0.attention.self.query.weight"},
                             std::vector<std::string>{"roberta.embeddings.", layer + "0.", layer + "1.output."}}) {
    for (auto* model : {&keeps, &recomputes}) {
      for (auto& item : (*model)->named_parameters()) {
        item.value().mutable_grad().reset();
        item.value().set_requires_grad(
            std::ranges::none_of(frozen, [&](const auto& each) { return item.key().starts_with(each); }));
      }
    }
    const auto kept = train_step(keeps, texts, labels, at::kFloat);
    const auto recomputed = train_step(recomputes, texts, labels, at::kFloat);
    ASSERT_EQ(kept.size(), recomputed.size());
    EXPECT_LT(kept.size(), keeps->parameters().size() + 1);
    for (std::size_t k = 0; k < kept.size(); ++k) EXPECT_TRUE(at::equal(kept[k], recomputed[k])) << k;
  }
}

TEST(Roberta, RecomputedLayersGiveEachGradientOnce) {
  torch::manual_seed(1);
  RobertaForClassification model(small({.vocabulary = 100, .recompute_layers = true}));
  std::vector<int> calls(model->parameters().size());
  for (std::size_t k = 0; k < calls.size(); ++k) {
    model->parameters()[k].register_hook([&calls, k](const at::Tensor&) { ++calls[k]; });
  }
  model->parameters()[3].set_requires_grad(false);  // a norm of the embeddings
  classification_loss(RobertaTask::single_label, model->forward(texts_of({9, 5})), torch::tensor({0, 1})).backward();
  calls[3] += 1;
  EXPECT_THAT(calls, ::testing::Each(1));
  // The layers alone have nothing to compute gradients for.
  for (const auto& parameter : model->parameters()) parameter.set_requires_grad(false);
  EXPECT_FALSE(model->forward(texts_of({9})).requires_grad());
}

TEST(Roberta, ComputesInSixteenBits) {
  torch::manual_seed(2);
  RobertaForClassification model(small());
  model->eval();
  const auto texts = texts_of({30, 2, 64});
  const auto exact = model->forward(texts).detach();
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const Autocast autocast{c10::kCPU, {.type = type}};
    const auto rounded = model->forward(texts).detach();
    EXPECT_EQ(rounded.scalar_type(), type);
    EXPECT_LT((rounded.to(at::kFloat) - exact).abs().max().item<double>(), 2e-2);
  }
  // A whole model of 16 bits, without autocast.
  model->to(at::kBFloat16);
  EXPECT_LT((model->forward(texts).to(at::kFloat) - exact).abs().max().item<double>(), 2e-2);
}

TEST(Roberta, LossesAreMeansInFloat32) {
  const auto logits = torch::tensor({{0.0F, 2.0F}, {1.0F, -1.0F}}).to(at::kBFloat16);
  const double log_sum = std::log1p(std::exp(-2.0));
  const auto loss = [&](RobertaTask task, const at::Tensor& labels) {
    const auto found = classification_loss(task, logits, labels);
    EXPECT_EQ(found.scalar_type(), at::kFloat);
    return found.item<double>();
  };
  EXPECT_NEAR(loss(RobertaTask::single_label, torch::tensor({1, 1})), (log_sum + 2 + log_sum) / 2, 1e-6);
  EXPECT_NEAR(loss(RobertaTask::regression, torch::tensor({{0, 0}, {1, 0}})), (4 + 1) / 4.0, 1e-6);
  const auto softplus = [](double x) { return std::log1p(std::exp(x)); };
  EXPECT_NEAR(loss(RobertaTask::multi_label, torch::tensor({{0, 1}, {1, 0}})),
              (softplus(0) + softplus(-2) + softplus(-1) + softplus(-1)) / 4, 1e-6);
  EXPECT_THROW(classification_loss(RobertaTask::regression, logits, torch::zeros({2})), std::invalid_argument);
  const auto three = torch::zeros({3, 2});
  EXPECT_THAT(message_of<std::invalid_argument>(
                  [&] { classification_loss(RobertaTask::multi_label, three, torch::zeros({2, 3})); }),
              HasSubstr("[3, 2] were given labels of the shape [2, 3]. Give labels of the shape [3, 2]."));
  EXPECT_EQ(classification_loss(RobertaTask::regression, three.narrow(1, 0, 1), torch::ones({3})).item<double>(), 1);
  EXPECT_EQ(classification_loss(RobertaTask::regression, three, torch::ones({2, 3}).t()).item<double>(), 1);
  EXPECT_NEAR(masked_lm_loss(logits, torch::tensor({-100, 0})).item<double>(), log_sum, 1e-6);
  EXPECT_EQ(masked_lm_loss(logits, torch::tensor({-100, -100})).item<double>(), 0);
}

TEST(RobertaConfig, KeepsWhatItWrites) {
  const test::TemporaryFolder folder;
  const RobertaConfig written{.options = {.vocabulary = 77,
                                          .hidden = 64,
                                          .layers = 3,
                                          .heads = 2,
                                          .feed_forward = 99,
                                          .positions = 40,
                                          .token_types = 2,
                                          .pad_id = 4,
                                          .dropout = 0.25,
                                          .attention_dropout = 0.125,
                                          .classifier_dropout = 0.5,
                                          .norm_epsilon = 1e-7,
                                          .initial_deviation = 0.03,
                                          .classes = 2,
                                          .task = RobertaTask::multi_label},
                              .classes = {"schlecht", "gut\xc3\xa4"},
                              .begin_id = 2,
                              .end_id = 3};
  write_roberta_config(written, folder.path().string());
  const auto read = read_roberta_config((folder.path() / "config.json").string());
  EXPECT_EQ(read.classes, written.classes);
  EXPECT_EQ(read.begin_id, 2);
  EXPECT_EQ(read.end_id, 3);
  EXPECT_FALSE(read.masked_lm);
  write_roberta_config({.options = written.options, .masked_lm = true}, folder.path().string());
  EXPECT_TRUE(read_roberta_config(folder.path().string()).masked_lm);
  const auto &found = read.options, &wanted = written.options;
  EXPECT_EQ(found.vocabulary, wanted.vocabulary);
  EXPECT_EQ(found.hidden, wanted.hidden);
  EXPECT_EQ(found.layers, wanted.layers);
  EXPECT_EQ(found.heads, wanted.heads);
  EXPECT_EQ(found.feed_forward, wanted.feed_forward);
  EXPECT_EQ(found.positions, wanted.positions);
  EXPECT_EQ(found.token_types, wanted.token_types);
  EXPECT_EQ(found.pad_id, wanted.pad_id);
  EXPECT_EQ(found.dropout, wanted.dropout);
  EXPECT_EQ(found.attention_dropout, wanted.attention_dropout);
  EXPECT_EQ(found.classifier_dropout, wanted.classifier_dropout);
  EXPECT_EQ(found.norm_epsilon, wanted.norm_epsilon);
  EXPECT_EQ(found.initial_deviation, wanted.initial_deviation);
  EXPECT_EQ(found.classes, wanted.classes);
  EXPECT_EQ(found.task, wanted.task);
}

TEST(RobertaConfig, RefusesWhatIsNoRoberta) {
  const test::TemporaryFolder folder;
  const auto refused = [&](const std::string& json) {
    std::ofstream((folder.path() / "config.json").string()) << json;
    return message_of<EnvironmentError>([&] { read_roberta_config(folder.path().string()); });
  };
  const auto path = (folder.path() / "config.json").string();
  const auto unreadable = [&] {
    return message_of<EnvironmentError>([&] { read_roberta_config(folder.path().string()); });
  };
  EXPECT_THAT(unreadable(), HasSubstr("'" + path + "' cannot be read: No such file or directory."));
  std::filesystem::create_directory(path);
  EXPECT_THAT(unreadable(), HasSubstr("'" + path + "' cannot be read: Is a directory."));
  std::filesystem::remove(path);
  EXPECT_THAT(refused("[1]"), HasSubstr("is not a JSON object"));
  EXPECT_THAT(refused(R"({"model_type": "rob)"), HasSubstr("'" + path + "' is not JSON at byte 20 of 19."));
  EXPECT_THAT(refused(R"({"model_type": 1e999})"), HasSubstr("'" + path + "' has a number beyond"));
  EXPECT_THAT(refused("{}"), HasSubstr("no \"model_type\""));
  EXPECT_THAT(refused(R"({"model_type": "bert"})"), HasSubstr("\"model_type\": \"bert\". Expected \"roberta\"."));
  const auto with = [&](const std::string& values) { return refused(R"({"model_type": "roberta", )" + values + "}"); };
  EXPECT_THAT(with(R"("hidden_act": "relu")"), HasSubstr("Expected \"gelu\""));
  EXPECT_THAT(with(R"("num_hidden_layers": 0)"), HasSubstr("a whole number from 1"));
  EXPECT_THAT(with(R"("num_hidden_layers": 1001)"), HasSubstr("a whole number from 1 to 1000."));
  EXPECT_THAT(with(R"("num_hidden_layers": 18446744073709551615)"), HasSubstr("a whole number from 1 to 1000."));
  EXPECT_THAT(with(R"("num_hidden_layers": 1.5)"), HasSubstr("\"num_hidden_layers\": 1.5"));
  EXPECT_THAT(with(R"("hidden_dropout_prob": 1)"), HasSubstr("to below 1"));
  EXPECT_THAT(with(R"("id2label": {"0": "a", "2": "b"})"), HasSubstr("id2label"));
  EXPECT_THAT(with(R"("id2label": {"0": "a", "00": "b"})"), HasSubstr("id2label"));
  EXPECT_THAT(with(R"("problem_type": "ranking")"), HasSubstr("multi_label_classification"));
  EXPECT_THAT(with(R"("max_position_embeddings": 2)"), HasSubstr("a whole number from 3"));
  EXPECT_THAT(with(R"("position_embedding_type": "relative_key")"), HasSubstr("Expected \"absolute\""));
  for (const char* key : {"is_decoder", "add_cross_attention"}) {
    EXPECT_THAT(with(std::string("\"") + key + "\": true"), AllOf(HasSubstr(key), HasSubstr("Expected false")));
  }
  EXPECT_THAT(with(R"("tie_word_embeddings": false)"),
              AllOf(HasSubstr("tie_word_embeddings"), HasSubstr("Expected true")));
}

TEST(RobertaConfig, RefusesSizesThatDoNotFitEachOther) {
  const test::TemporaryFolder folder;
  const auto path = (folder.path() / "config.json").string();
  const auto with = [&](const std::string& values) {
    std::ofstream(path) << R"({"model_type": "roberta", )" + values + "}";
    return message_of<EnvironmentError>([&] { read_roberta_config(path); });
  };
  EXPECT_EQ(with(R"("hidden_size": 100)"),
            "'" + path + "' has \"hidden_size\": 100. Expected a multiple of \"num_attention_heads\", 12.");
  EXPECT_EQ(with(R"("vocab_size": 7, "pad_token_id": 7)"),
            "'" + path + "' has \"pad_token_id\": 7. Expected a whole number from 0 to 6.");
  EXPECT_THAT(with(R"("vocab_size": 1)"), HasSubstr("\"pad_token_id\": 1"));  // the default
  EXPECT_THAT(with(R"("hidden_size": 1048576, "num_attention_heads": 1)"), HasSubstr("at most 1e+11 parameters"));
  EXPECT_THAT(with(R"("num_hidden_layers": 1000, "intermediate_size": 1048576)"), HasSubstr("at most 1e+11"));
  EXPECT_THAT(with(R"("num_labels": 1073741824)"), HasSubstr("\"num_labels\""));
}

TEST(RobertaConfig, RefusesDeepNesting) {
  const test::TemporaryFolder folder;
  const auto path = (folder.path() / "config.json").string();
  constexpr std::size_t kDepth = 200'000;
  for (const auto& [open, close, kind] : {std::tuple{"[", "]", "a list"}, {"{\"a\":", "}", "an object"}}) {
    std::string nested;
    for (std::size_t k = 0; k < kDepth; ++k) nested += open;
    nested += "1";
    for (std::size_t k = 0; k < kDepth; ++k) nested += close;
    for (const char* key : {"hidden_act", "id2label"}) {
      std::ofstream(path) << "{\"model_type\": \"roberta\", \"" << key << "\": " << nested << "}";
      EXPECT_THAT(message_of<EnvironmentError>([&] { read_roberta_config(path); }),
                  HasSubstr(std::string("\"") + key + "\": " + kind + ". Expected"));
    }
  }
}

}  // namespace
}  // namespace libtrain::models
