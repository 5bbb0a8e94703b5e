#include <libtrain/data/idx_images.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using libtrain::test::TemporaryFolder;
using libtrain::test::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Bytes = std::vector<unsigned char>;

class IdxImagesFiles : public ::testing::Test {
 protected:
  void write(const std::string& name, const Bytes& bytes) const {
    write_file(folder_ / name, std::string(bytes.begin(), bytes.end()));
  }

  std::string error() const {
    return message_of<EnvironmentError>([&] { IdxImages(folder_.path(), IdxSplit::train); });
  }

  const Bytes images_{0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, 0, 51, 255, 1, 2, 3};  // two of 1x3
  const Bytes labels_{0, 0, 8, 1, 0, 0, 0, 2, 4, 7};
  const TemporaryFolder folder_;
};

TEST_F(IdxImagesFiles, ScalesPixelsAndKeepsLabels) {
  write("train-images-idx3-ubyte", images_);
  write("train-labels-idx1-ubyte", labels_);
  const IdxImages images(folder_.path(), IdxSplit::train, {.mean = 0.5f, .standard_deviation = 0.25f});
  EXPECT_EQ(images.size(), 2u);
  EXPECT_EQ(images.height(), 1);
  EXPECT_EQ(images.width(), 3);
  EXPECT_EQ(images.classes(), 8);
  const Sample sample = images.sample(0);
  EXPECT_EQ(sample.label, 4);
  ASSERT_EQ(sample.image.sizes(), (at::IntArrayRef{1, 1, 3}));
  ASSERT_EQ(sample.image.scalar_type(), at::kFloat);
  const auto* pixels = sample.image.const_data_ptr<float>();
  EXPECT_FLOAT_EQ(pixels[0], -2.f);
  EXPECT_FLOAT_EQ(pixels[1], -1.2f);  // (51 / 255 - 0.5) / 0.25
  EXPECT_FLOAT_EQ(pixels[2], 2.f);
  EXPECT_EQ(images.sample(1).label, 7);
  EXPECT_THROW(images.sample(2), UsageError);
}

TEST_F(IdxImagesFiles, RefusesALabelThatIsNotBelowTheNumberOfClasses) {
  write("train-images-idx3-ubyte", images_);
  write("train-labels-idx1-ubyte", labels_);
  const auto open = [&](std::int64_t classes) {
    return IdxImages(folder_.path(), IdxSplit::train, {.classes = classes});
  };
  EXPECT_EQ(open(8).classes(), 8);
  EXPECT_EQ(open(300).classes(), 300);
  EXPECT_THAT(message_of<UsageError>([&] { open(7); }),
              AllOf(HasSubstr("label 7 of sample 1 in '" + (folder_ / "train-labels-idx1-ubyte") + "'"),
                    HasSubstr("byte offset 9"), HasSubstr("not below the model's 7 classes")));
  EXPECT_THROW(open(0), UsageError);
}

TEST_F(IdxImagesFiles, SayWhereAnImageLies) {
  write("train-images-idx3-ubyte", images_);
  write("train-labels-idx1-ubyte", labels_);
  const SampleOrigin origin = IdxImages(folder_.path(), IdxSplit::train).origin(1);
  EXPECT_EQ(origin.path, folder_ / "train-images-idx3-ubyte");
  EXPECT_EQ(origin.offset, 19u);
}

TEST_F(IdxImagesFiles, AreToldApartByTheirContent) {
  const auto identity = [&](Bytes images, Bytes labels) {
    write("train-images-idx3-ubyte", images);
    write("train-labels-idx1-ubyte", labels);
    return IdxImages(folder_.path(), IdxSplit::train).identity();
  };
  const DatasetIdentity before = identity(images_, labels_);
  EXPECT_EQ(before.front(), "2 samples");
  EXPECT_EQ(identity(images_, labels_), before);
  Bytes other = images_;
  ++other.back();
  EXPECT_NE(identity(other, labels_), before);
  EXPECT_NE(identity(images_, {0, 0, 8, 1, 0, 0, 0, 2, 7, 4}), before);
  const Bytes turned{0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 1, 0, 51, 255, 1, 2, 3};
  EXPECT_NE(identity(turned, labels_), before);
}

TEST_F(IdxImagesFiles, AcceptsNamesWithADot) {
  write("t10k-images.idx3-ubyte", images_);
  write("t10k-labels.idx1-ubyte", labels_);
  EXPECT_EQ(IdxImages(folder_.path(), IdxSplit::test).size(), 2u);
}

TEST_F(IdxImagesFiles, NamesBothFilesWhoseCountsDiffer) {
  write("train-images-idx3-ubyte", images_);
  write("train-labels-idx1-ubyte", {0, 0, 8, 1, 0, 0, 0, 1, 4});
  EXPECT_THAT(error(), AllOf(HasSubstr("train-labels-idx1-ubyte', byte offset 4"), HasSubstr("expected 2 labels"),
                             HasSubstr("train-images-idx3-ubyte"), HasSubstr("found 1")));
}

TEST_F(IdxImagesFiles, RefusesMissingEmptyOrWronglyShapedFiles) {
  EXPECT_THAT(error(), HasSubstr("train-images-idx3-ubyte"));
  write("train-images-idx3-ubyte", labels_);
  write("train-labels-idx1-ubyte", labels_);
  EXPECT_THAT(error(), AllOf(HasSubstr("expected 3 dimensions"), HasSubstr("found 1")));
  write("train-images-idx3-ubyte", {0, 0, 8, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3});
  write("train-labels-idx1-ubyte", {0, 0, 8, 1, 0, 0, 0, 0});
  EXPECT_THAT(error(), HasSubstr("0 x 1 x 3"));
  EXPECT_THROW(IdxImages(folder_ / "absent", IdxSplit::train), EnvironmentError);
  EXPECT_THROW(IdxImages(folder_.path(), IdxSplit::train, {.standard_deviation = 0.f}), UsageError);
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THROW(IdxImages(folder_.path(), IdxSplit::train, {.standard_deviation = infinity}), UsageError);
  EXPECT_THROW(IdxImages(folder_.path(), IdxSplit::train, {.mean = std::nanf("")}), UsageError);
}

// The counts are those of scikit-learn's digits: 178, 182, 177, 183, 181, 182, 181, 179, 174, 180.
TEST(IdxImages, ReadsTheDigitsOfTheExample) {
  const std::string directory = "examples/digits/data";  // tests run from the root of the checkout
  std::vector<int> counts(10);
  std::uint64_t size = 0;
  for (const IdxSplit split : {IdxSplit::train, IdxSplit::test}) {
    const IdxImages images(directory, split);
    EXPECT_EQ(images.size(), split == IdxSplit::train ? 1437u : 360u);
    EXPECT_EQ(images.classes(), 10);
    EXPECT_EQ(images.height(), 8);
    EXPECT_EQ(images.width(), 8);
    size += images.size();
    for (std::uint64_t i = 0; i < images.size(); ++i) ++counts[static_cast<std::size_t>(images.sample(i).label)];
  }
  EXPECT_EQ(size, 1797u);
  EXPECT_EQ(counts, (std::vector<int>{178, 182, 177, 183, 181, 182, 181, 179, 174, 180}));
}

}  // namespace
}  // namespace libtrain::data
