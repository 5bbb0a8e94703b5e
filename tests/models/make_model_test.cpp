#include <libtrain/models/make_model.hpp>

#include <memory>
#include <stdexcept>
#include <string>

#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace libtrain::models {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

struct NoNetwork : ImageClassifier {
  explicit NoNetwork(std::int64_t count) : classes(count) {}
  at::Tensor forward(const at::Tensor& images) override { return at::zeros({images.size(0), classes}); }
  std::int64_t classes;
};

TEST(MakeModel, GivesAnyKnownModelTheSameInterface) {
  for (const auto& name : model_names()) {
    if (name.find("101") != std::string::npos || name.find("152") != std::string::npos)
      continue;  // as resnet50, slower
    const bool is_mnist = name.ends_with("mnist");
    const std::int64_t size = is_mnist ? 28 : 32;
    const auto model = make_model(name, {.classes = 10, .input_channels = is_mnist ? 1 : 3});
    model->eval();
    const auto logits = model->forward(at::rand({2, is_mnist ? 1 : 3, size, size}));
    EXPECT_EQ(logits.sizes(), (std::vector<std::int64_t>{2, 10})) << name;
  }
}

TEST(MakeModel, KnowsModelsOfThePrograms) {
  add_model("none", [](const ModelOptions& options) { return std::make_shared<NoNetwork>(options.classes); });
  EXPECT_THAT(model_names(), Contains("none"));
  EXPECT_EQ(make_model("none", {.classes = 7})->forward(at::zeros({3, 1, 2, 2})).size(1), 7);
  EXPECT_THROW(add_model("none", {}), std::invalid_argument);
  EXPECT_THROW(add_model("", {}), std::invalid_argument);
}

TEST(MakeModel, NamesMistakes) {
  try {
    make_model("resnet51");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("no model 'resnet51'"), HasSubstr("resnet50, ")));
  }
  try {
    make_model("pytorch_mnist");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("'pytorch_mnist' has 10 classes and 1 input channel"));
  }
}

}  // namespace
}  // namespace libtrain::models
