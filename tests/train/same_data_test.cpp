#include <libtrain/train/same_data.hpp>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/data_loader.hpp>
#include <libtrain/data/image_dataset.hpp>
#include <libtrain/train/context.hpp>

#include <tests/support/message_of.hpp>
#include <tests/support/on_ranks.hpp>

namespace libtrain {
namespace {

using test::message_of;
using test::on_ranks;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Files 0.jpg, 1.jpg, ... of a class, in a folder of the node's own.
class Listed : public data::ImageSource {
 public:
  Listed(std::string folder, std::uint64_t size, std::vector<std::string> classes)
      : folder_(std::move(folder)), size_(size), classes_(std::move(classes)) {}
  const std::string& name() const override { return folder_; }
  std::uint64_t size() const override { return size_; }
  void read(std::uint64_t, data::EncodedImage&) const override { FAIL() << "only names are asked for"; }
  data::SampleOrigin origin(std::uint64_t index) const override {
    return {.path = text(folder_, "/", classes_.front(), "/", index == other_at ? "other" : text(index), ".jpg")};
  }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::vector<std::uint64_t> blocks() const override { return {}; }

  std::uint64_t other_at = ~std::uint64_t{0};

 private:
  std::string folder_;
  std::uint64_t size_;
  std::vector<std::string> classes_;
};

data::ImageDataset dataset_of(const Listed& images) {
  return data::ImageDataset(std::make_shared<const Listed>(images));
}

TEST(SameData, MayLieInAnotherFolderOnEachNode) {
  on_ranks([](Communicator& communicator) {
    const Listed images(text("/local/disk", communicator.rank(), "/train"), 5000, {"cat", "dog"});
    EXPECT_NO_THROW(require_same_data(dataset_of(images), communicator));
  });
}

TEST(SameData, DifferencesAreAnErrorOnEveryRank) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    const bool last = communicator.rank() == communicator.world_size() - 1;
    const auto check = [&](const Listed& images) {
      return message_of<UsageError>([&] { require_same_data(dataset_of(images), communicator); });
    };
    EXPECT_THAT(check(Listed("/data", last ? 99 : 100, {"cat"})),
                AllOf(HasSubstr("100 samples"), HasSubstr("99 samples")));
    EXPECT_THAT(check(Listed("/data", 100, {"cat", last ? "cow" : "dog"})),
                AllOf(HasSubstr("class dog"), HasSubstr("class cow")));
    Listed images("/data", 100, {"cat"});
    if (last) images.other_at = 57;
    EXPECT_THAT(check(images), AllOf(HasSubstr("cat/57.jpg"), HasSubstr("cat/other.jpg")));
    Listed many("/data", 100'000, {"cat"});
    if (last) many.other_at = 57'123;
    EXPECT_THAT(check(many), HasSubstr("samples 57065 to 57165"));
  });
}

// Pictures are read by the workers, which must not matter here.
TEST(SameData, IsAskedForWhenALoaderBegins) {
  on_ranks([](Communicator& communicator) {
    if (communicator.world_size() == 1) return;
    Context context{{std::shared_ptr<Communicator>{std::shared_ptr<void>{}, &communicator}}, {.quiet = true}};
    class Numbers : public data::DatasetOf<int> {
     public:
      explicit Numbers(std::uint64_t size) : size_(size) {}
      std::uint64_t size() const override { return size_; }
      int get(std::uint64_t index, data::SampleRandom& /*random*/) const override { return static_cast<int>(index); }

     private:
      std::uint64_t size_;
    };
    const auto sum = [](const std::vector<int>& numbers) { return std::accumulate(numbers.begin(), numbers.end(), 0); };
    const Numbers same(100);
    data::DataLoaderOf good(same, sum, {}, context.shard());
    EXPECT_TRUE(good.epoch(0).next());
    EXPECT_TRUE(good.epoch(1).next());

    const Numbers numbers(communicator.rank() == 0 ? 100 : 101);
    data::DataLoaderOf loader(numbers, sum, {}, context.shard());
    EXPECT_THAT(message_of<UsageError>([&] { loader.epoch(0); }), AllOf(HasSubstr("100 samples"), HasSubstr("101")));
    data::DataLoaderOf alone(numbers, sum, {}, data::Shard{.rank = communicator.rank(), .world_size = 4});
    EXPECT_TRUE(alone.epoch(0).next());
  });
}

}  // namespace
}  // namespace libtrain
