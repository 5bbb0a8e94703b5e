#include <libtrain/checkpoint/weights.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <libtrain/base/error.hpp>
#include <libtrain/checkpoint/safetensors.hpp>

#include <tests/checkpoint/pth_bytes.hpp>
#include <tests/checkpoint/safetensors_bytes.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

torch::nn::Sequential small_model() {
  return torch::nn::Sequential(torch::nn::Linear(2, 3), torch::nn::BatchNorm1d(3));
}

// A module of tensors with names that a Sequential cannot have.
class NamedTensors : public torch::nn::Module {
 public:
  explicit NamedTensors(const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
    for (const auto& [name, tensor] : tensors) register_buffer(name, tensor);
  }
};

// Puts "backbone." before the names of another module.
class Wrapped : public torch::nn::Module {
 public:
  explicit Wrapped(std::shared_ptr<torch::nn::Module> backbone) { register_module("backbone", std::move(backbone)); }
};

class WeightsOfModules : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(3); }

  std::string save(const torch::nn::Module& module) const {
    save_weights(module, path());
    return path();
  }

  std::string path() const { return folder_ / "model.safetensors"; }

  std::string refusal(torch::nn::Module& module, const LoadWeightsOptions& options = {}) const {
    return message_of<UsageError>([&] { load_weights(module, path(), options); });
  }

  const test::TemporaryFolder folder_;
};

TEST_F(WeightsOfModules, AreTheSameAfterSavingAndLoading) {
  auto saved = small_model();
  saved->forward(torch::ones({4, 2}));  // changes the buffers
  auto loaded = small_model();
  const auto* const memory = loaded->parameters()[0].const_data_ptr();
  const auto result = load_weights(*loaded, save(*saved));
  EXPECT_THAT(result.loaded, ElementsAre("0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var",
                                         "1.num_batches_tracked"));
  EXPECT_THAT(result.missing, IsEmpty());
  EXPECT_THAT(result.unexpected, IsEmpty());
  for (const auto& item : saved->named_parameters()) {
    EXPECT_TRUE(loaded->named_parameters()[item.key()].equal(item.value())) << item.key();
  }
  EXPECT_EQ(loaded->named_buffers()["1.num_batches_tracked"].item<std::int64_t>(), 1);
  EXPECT_EQ(loaded->parameters()[0].const_data_ptr(), memory);
  EXPECT_TRUE(loaded->parameters()[0].requires_grad());
}

// Such as torchvision's first, which Python's BatchNorm reads like this.
TEST_F(WeightsOfModules, OfBatchNormMayLackTheCount) {
  const auto ones = torch::ones({3});
  const auto save_old = [&](std::vector<std::pair<std::string, at::Tensor>> norm) {
    save(*torch::nn::ModuleList{torch::nn::Linear(2, 3), NamedTensors{norm}});
  };
  save_old({{"weight", ones}, {"bias", ones}, {"running_mean", ones}, {"running_var", ones}});
  auto model = small_model();
  model->forward(torch::ones({4, 2}));
  const auto result = load_weights(*model, path());
  EXPECT_EQ(result.loaded.size(), 7U);
  EXPECT_THAT(result.missing, IsEmpty());
  EXPECT_EQ(model->named_buffers()["1.running_mean"].sum().item<float>(), 3);
  const auto count = model->named_buffers()["1.num_batches_tracked"];
  EXPECT_EQ(count.item<std::int64_t>(), 0);
  model->forward(torch::ones({4, 2}));
  EXPECT_THAT(load_weights(*model, path(), {.may_be_missing = {"1.num"}}).missing,
              ElementsAre("1.num_batches_tracked"));
  EXPECT_EQ(count.item<std::int64_t>(), 1);
  save_old({{"weight", ones}, {"bias", ones}, {"running_var", ones}});
  EXPECT_THAT(refusal(*model), HasSubstr("2 missing (1.running_mean, 1.num_batches_tracked)"));
}

TEST_F(WeightsOfModules, AreReadAsTensors) {
  auto saved = small_model();
  const auto tensors = read_tensors(save(*saved));
  ASSERT_EQ(tensors.size(), 7U);
  EXPECT_TRUE(tensors.at("0.weight").equal(saved->named_parameters()["0.weight"]));
  EXPECT_EQ(SafetensorsFile{path()}.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
}

TEST_F(WeightsOfModules, AreWrittenInTheOrderOfTheirElementsWhateverTheirMemory) {
  const auto values = torch::arange(120.0).reshape({2, 3, 4, 5});
  save(NamedTensors{{{"plain", values},
                     {"channels_last", values.contiguous(at::MemoryFormat::ChannelsLast)},
                     {"transposed", values.transpose(0, 3)},
                     {"part", values.select(2, 1)},
                     {"scalar", torch::tensor(7)},
                     {"empty", torch::empty({0, 3})},
                     {"conjugated", torch::complex(torch::ones(2), torch::ones(2)).conj()}}});
  const auto tensors = read_tensors(path());
  EXPECT_TRUE(tensors.at("channels_last").equal(values));
  EXPECT_TRUE(tensors.at("transposed").equal(values.transpose(0, 3)));
  EXPECT_TRUE(tensors.at("part").equal(values.select(2, 1)));
  EXPECT_TRUE(tensors.at("scalar").equal(torch::tensor(7)));
  EXPECT_EQ(tensors.at("empty").sizes(), (std::vector<std::int64_t>{0, 3}));
  EXPECT_EQ(at::imag(tensors.at("conjugated")).sum().item<float>(), -2);
  NamedTensors module{{{"plain", torch::zeros({5, 3, 4, 2}).transpose(0, 3)},
                       {"channels_last", torch::zeros({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast)}}};
  load_weights(module, path(), {.may_be_unexpected = {""}});
  for (const auto& item : module.named_buffers()) EXPECT_TRUE(item.value().equal(values)) << item.key();
  EXPECT_TRUE(module.named_buffers()["channels_last"].is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST_F(WeightsOfModules, AreRoundedToTheModulesFloatingPointType) {
  const auto values = torch::tensor({1.0F, 1.0F + 1.0F / 1024, 3.0e38F});
  save(NamedTensors{{{"a", values}}});
  NamedTensors module{{{"a", torch::zeros({3}, at::kBFloat16)}}};
  load_weights(module, path());
  EXPECT_EQ(module.named_buffers()["a"].scalar_type(), at::kBFloat16);
  EXPECT_TRUE(module.named_buffers()["a"].equal(values.to(at::kBFloat16)));
}

// Module::to(dtype) converts the count, too.
TEST_F(WeightsOfModules, OfBatchNormKeepTheirCountInAnyDtype) {
  torch::nn::BatchNorm1d saved(3);
  saved->num_batches_tracked.fill_(1001);
  save_weights(*saved, path());
  for (const auto type : {at::kDouble, at::kHalf}) {
    torch::nn::BatchNorm1d converted(3);
    converted->to(type);
    load_weights(*converted, path());
    EXPECT_EQ(converted->num_batches_tracked.item<double>(), 1001);
    save_weights(*converted, path());
    const auto count = read_tensors(path()).at("num_batches_tracked");
    EXPECT_EQ(count.scalar_type(), at::kLong);
    EXPECT_EQ(count.item<std::int64_t>(), 1001);
  }
}

// As in a checkpoint: model-average.safetensors.
TEST_F(WeightsOfModules, OfAnAverageAreLoadedWithoutItsUpdates) {
  save(NamedTensors{{{"a", torch::ones({3})}, {"::updates", torch::tensor(7)}}});
  NamedTensors module{{{"a", torch::zeros({3})}}};
  EXPECT_TRUE(load_weights(module, path()).unexpected.empty());
  EXPECT_TRUE(module.named_buffers()["a"].equal(torch::ones({3})));
}

TEST_F(WeightsOfModules, AreNotConvertedBetweenOtherTypes) {
  save(NamedTensors{{{"a", torch::zeros({3})}, {"b", torch::zeros({1}, at::kInt)}}});
  NamedTensors module{{{"a", torch::zeros({3}, at::kLong)}, {"b", torch::zeros({1}, at::kLong)}}};
  EXPECT_THAT(refusal(module),
              AllOf(HasSubstr("2 different"), HasSubstr("a: dtype Float in the file, Long in the module"),
                    HasSubstr("b: dtype Int in the file, Long in the module")));
}

TEST_F(WeightsOfModules, ThatDoNotFitAreAllNamedAndChangeNothing) {
  save(NamedTensors{{{"same", torch::ones({2})}, {"shape", torch::ones({2, 3})}, {"extra", torch::ones({1})}}});
  NamedTensors module{{{"same", torch::zeros({2})}, {"shape", torch::zeros({3, 2})}, {"other", torch::zeros({1})}}};
  EXPECT_THAT(refusal(module),
              AllOf(HasSubstr("'" + path() +
                              "' does not fit the module, which is unchanged: 1 missing (other); 1 unexpected "
                              "(extra); 1 different (shape: shape [2, 3] in the file, [3, 2] in the module)"),
                    HasSubstr("'may_be_missing'")));
  EXPECT_EQ(module.named_buffers()["same"].sum().item<float>(), 0);
}

TEST_F(WeightsOfModules, ListsAtMostTenNamesOfAKind) {
  save(NamedTensors{{}});
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (int i = 10; i < 35; ++i) tensors.emplace_back("t" + std::to_string(i), torch::zeros({1}));
  NamedTensors module{tensors};
  EXPECT_THAT(refusal(module),
              AllOf(HasSubstr("25 missing (t10, "), HasSubstr("t19, and 15 more)"), Not(HasSubstr("t20"))));
}

TEST_F(WeightsOfModules, AdvisePrefixesThatWouldFit) {
  save(NamedTensors{{{"weight", torch::ones({2})}}});
  const std::vector<std::pair<std::string, at::Tensor>> zeros{{"weight", torch::zeros({2})}};
  Wrapped wrapped{std::make_shared<NamedTensors>(zeros)};
  EXPECT_THAT(refusal(wrapped), HasSubstr("The file's names seem to lack 'backbone.': add it with 'rename', or with "));
  load_weights(wrapped, path(), {.rename = {{"", "backbone."}}});
  EXPECT_EQ(wrapped.named_buffers()["backbone.weight"].sum().item<float>(), 2);
  save(wrapped);
  NamedTensors bare{{{"weight", torch::zeros({2})}}};
  EXPECT_THAT(refusal(bare), HasSubstr("The file's names seem to begin with 'backbone.': set 'prefix' to it, or "));
  load_weights(bare, path(), {.prefix = "backbone."});
  EXPECT_EQ(bare.named_buffers()["weight"].sum().item<float>(), 2);
}

TEST_F(WeightsOfModules, MayLackAndHaveWhatTheOptionsAllow) {
  save(NamedTensors{{{"body", torch::ones({2})}, {"fc_weight", torch::ones({1000})}, {"aux", torch::ones({1})}}});
  NamedTensors module{
      {{"body", torch::zeros({2})}, {"fc_weight", torch::zeros({10})}, {"fc_bias", torch::zeros({10})}}};
  const auto result = load_weights(module, path(), {.may_be_missing = {"fc_"}, .may_be_unexpected = {"aux"}});
  EXPECT_THAT(result.loaded, ElementsAre("body"));
  EXPECT_THAT(result.missing, UnorderedElementsAre("fc_weight", "fc_bias"));
  EXPECT_THAT(result.unexpected, UnorderedElementsAre("fc_weight", "aux"));
  EXPECT_EQ(module.named_buffers()["body"].sum().item<float>(), 2);
  EXPECT_EQ(module.named_buffers()["fc_weight"].sum().item<float>(), 0);
}

TEST_F(WeightsOfModules, AreRenamedByTheFirstChangeThatFits) {
  save(NamedTensors{{{"old_a", torch::ones({1})}, {"older", torch::full({1}, 2)}}});
  NamedTensors module{{{"new_a", torch::zeros({1})}, {"newer", torch::zeros({1}, at::kLong)}}};
  load_weights(module, path(), {.rename = {{"older", "newer"}, {"old_", "new_"}, {"old", "bad"}}});
  EXPECT_EQ(module.named_buffers()["newer"].item<std::int64_t>(), 2);
  EXPECT_THAT(refusal(module, {.rename = {{"old_a", "x"}, {"older", "x"}}}),
              HasSubstr("are both called 'x' after 'rename'"));
}

TEST_F(WeightsOfModules, ThatAreTiedNeedOneNameInTheFile) {
  const auto tied = torch::zeros({2});
  save(NamedTensors{{{"embedding", torch::ones({2})}}});
  NamedTensors module{{{"embedding", tied}, {"head", tied}}};
  EXPECT_THAT(load_weights(module, path()).loaded, ElementsAre("embedding", "head"));
  EXPECT_EQ(tied.sum().item<float>(), 2);
}

TEST_F(WeightsOfModules, LeaveOutParametersThatAreUndefined) {
  torch::nn::Linear linear(torch::nn::LinearOptions(2, 3).bias(false));
  EXPECT_THAT(load_weights(*linear, save(*linear)).loaded, ElementsAre("weight"));
}

TEST_F(WeightsOfModules, OfDtypesThatFilesDoNotHaveAreRefused) {
  const NamedTensors module{{{"q", at::quantize_per_tensor(torch::ones({2}), 0.1, 0, at::kQInt8)}}};
  EXPECT_THAT(message_of<UsageError>([&] { save(module); }), HasSubstr("Tensor 'q' cannot be written"));
}

TEST_F(WeightsOfModules, AreReadFromFilesOfTorchSave) {
  test::write_file(path(), test::sample_pth());
  NamedTensors module{{{"weight", torch::zeros({2, 3})}}};
  const auto result = load_weights(module, path(), {.may_be_unexpected = {"inner."}});
  EXPECT_THAT(result.unexpected, ElementsAre("inner.bias"));
  EXPECT_TRUE(module.named_buffers()["weight"].view(at::kInt).eq(0x01010101).all().item<bool>());
}

TEST_F(WeightsOfModules, ShareMemoryLikeInTheFileOfTorchSave) {
  using test::pickled_text;
  const auto pickle = test::pickle_of("}(" + pickled_text("whole") + test::pickled_tensor("0", 6, {6}, {1}) +
                                      pickled_text("column") + test::pickled_tensor("0", 6, {2}, {3}, 1) +
                                      pickled_text("none") + test::pickled_tensor("1", 0, {0, 5}, {5, 1}) + "u");
  const std::vector<float> values{0, 1, 2, 3, 4, 5};
  const std::string bytes(reinterpret_cast<const char*>(values.data()), 24);
  test::write_file(path(), test::zip_bytes({test::pth_part("data.pkl", pickle), test::pth_part("data/0", bytes),
                                            test::pth_part("data/1", "")}));
  const auto tensors = read_tensors(path());
  EXPECT_TRUE(tensors.at("column").equal(torch::tensor({1.0F, 4.0F})));
  EXPECT_TRUE(tensors.at("column").is_alias_of(tensors.at("whole")));
  EXPECT_EQ(tensors.at("none").sizes(), (std::vector<std::int64_t>{0, 5}));
}

TEST_F(WeightsOfModules, OfTypesThatLibTorchLacksAreRefusedWhereTheyAreUsed) {
  test::write_file(path(), test::safetensors_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                                   R"("b":{"dtype":"F4","shape":[2],"data_offsets":[1,2]}})",
                                                   "x4"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { read_tensors(path()); }), HasSubstr("'b' has elements of type F4"));
  NamedTensors module{{{"a", torch::zeros({1}, at::kByte)}}};
  load_weights(module, path(), {.may_be_unexpected = {"b"}});
  EXPECT_EQ(module.named_buffers()["a"].item<int>(), 'x');
}

}  // namespace
}  // namespace libtrain
