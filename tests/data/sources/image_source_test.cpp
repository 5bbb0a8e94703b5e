// What sources of images do alike, whatever their files are. Those of Parquet files, which only Python writes, are in
// parquet_images_peer_test.py.

#include <libtrain/data/sources/image_source.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <latch>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/sources/folder_images.hpp>
#include <libtrain/data/sources/tf_record_images.hpp>
#include <libtrain/data/sources/web_dataset_images.hpp>
#include <libtrain/data/stage_clock.hpp>

#include <tests/data/formats/deflated.hpp>
#include <tests/data/sources/image_sets.hpp>
#include <tests/data/storage/memory_storage.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::all_of;
using libtrain::test::Labelled;
using libtrain::test::MemoryStorage;
using libtrain::test::message_of;
using libtrain::test::read_message;
using libtrain::test::SetFolder;
using libtrain::test::TemporaryFolder;
using libtrain::test::tf_record_file;
using libtrain::test::web_dataset_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// A kind of source writes images of one label below a path of its own.

struct Folders {
  using Source = FolderImages;
  static constexpr const char* kName = "FolderImages";

  static void write(const SetFolder& set, const std::string& path, const std::vector<Labelled>& images) {
    for (std::size_t i = 0; i < images.size(); ++i) set.write(path + "/" + std::to_string(i) + ".jpg", images[i].first);
  }
};

struct TfRecords {
  using Source = TfRecordImages;
  using Options = TfRecordImagesOptions;
  static constexpr const char* kName = "TfRecordImages";
  static constexpr const char* kExtension = ".tfrecord";
  static constexpr const char* kShards = "TFRecord files";
  static constexpr const char* kFirstLabel = "record 0 at byte offset 0";

  static std::string file(const std::vector<Labelled>& images) { return tf_record_file(images); }

  static void write(const SetFolder& set, const std::string& path, const std::vector<Labelled>& images) {
    set.write(path + kExtension, file(images));
  }
};

struct WebDatasets {
  using Source = WebDatasetImages;
  using Options = WebDatasetImagesOptions;
  static constexpr const char* kName = "WebDatasetImages";
  static constexpr const char* kExtension = ".tar";
  static constexpr const char* kShards = "tar archives";
  static constexpr const char* kFirstLabel = "'0.cls' at byte offset 1536";  // two headers and an image, 512 bytes each

  static std::string file(const std::vector<Labelled>& images) { return web_dataset_file(images); }

  static void write(const SetFolder& set, const std::string& path, const std::vector<Labelled>& images) {
    set.write(path + kExtension, file(images));
  }
};

struct NameOfKind {
  template <typename Kind>
  static std::string GetName(int) {
    return Kind::kName;
  }
};

template <typename Kind>
class ImageSources : public ::testing::Test {
 protected:
  using Source = typename Kind::Source;

  // The images are in the order of their labels, which are all from 0 on.
  void write(const std::vector<Labelled>& images) const {
    std::map<std::int64_t, std::vector<Labelled>> by_label;
    for (const auto& image : images) by_label[image.second].push_back(image);
    for (const auto& [label, same] : by_label) Kind::write(set_, text("set/", label), same);
  }

  Source open() const { return Source(set_.storage(), {.folder = "set"}); }

  SetFolder set_;
};

using AllKinds = ::testing::Types<Folders, TfRecords, WebDatasets>;
TYPED_TEST_SUITE(ImageSources, AllKinds, NameOfKind);

TYPED_TEST(ImageSources, ReadIntoTheMemoryThatIsThere) {
  this->write({{"a picture", 0}});
  const auto images = this->open();
  EncodedImage image;
  image.bytes.assign(2000, 'x');
  const char* const before = image.bytes.data();
  images.read(0, image);
  EXPECT_EQ(image.bytes, "a picture");
  EXPECT_EQ(image.bytes.data(), before);
}

TYPED_TEST(ImageSources, RefuseAnImageBeyondTheLast) {
  this->write({{"a", 0}, {"b", 1}});
  const auto images = this->open();
  EncodedImage image;
  EXPECT_THAT(message_of<UsageError>([&] { images.read(2, image); }),
              AllOf(HasSubstr("Image 2"), HasSubstr(text("'", this->set_.path(), "/set'")), HasSubstr("2 images")));
  EXPECT_THROW(images.origin(2), UsageError);
}

TYPED_TEST(ImageSources, NeedAStorage) {
  using Source = typename TestFixture::Source;
  EXPECT_THROW(Source(nullptr), UsageError);
}

// Each thread reads in an order of its own.
TYPED_TEST(ImageSources, AreReadByAnyNumberOfThreadsAtOnce) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kRounds = 20;
  std::vector<Labelled> expected;
  for (const int label : {0, 1, 2}) {
    for (const std::size_t thousands : {0U, 1U, 2U, 3U, 4U}) {
      expected.emplace_back(std::string(1000 * thousands, 'x') + std::to_string(label), label);
    }
  }
  this->write(expected);
  const auto images = this->open();
  const std::size_t size = expected.size();
  ASSERT_EQ(images.size(), size);
  std::latch start{static_cast<std::ptrdiff_t>(kThreads)};
  std::vector<std::jthread> threads;
  for (std::size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      EncodedImage image;
      start.arrive_and_wait();
      for (std::size_t i = 0; i < kRounds * size; ++i) {
        const std::size_t index = (i + thread * size / kThreads) % size;
        images.read(index, image);
        EXPECT_EQ(Labelled(image.bytes, image.label), expected[index]);
      }
    });
  }
}

// Those whose files hold many images each.
template <typename Kind>
class ShardSources : public ::testing::Test {
 protected:
  using Source = typename Kind::Source;
  using Options = typename Kind::Options;

  void write(const std::string& path, const std::vector<Labelled>& images) const { Kind::write(set_, path, images); }

  Source open(const Options& options = {}) const { return Source(set_.storage(), options); }

  std::string opening_message(const Options& options = {}) const {
    return message_of<EnvironmentError>([&] { open(options); });
  }

  SetFolder set_;
};

using ShardKinds = ::testing::Types<TfRecords, WebDatasets>;
TYPED_TEST_SUITE(ShardSources, ShardKinds, NameOfKind);

TYPED_TEST(ShardSources, ReadAllShardsInTheOrderOfTheirNames) {
  this->write("train-1", {{"c", 3}});
  this->write("train-0", {{"a", 1}, {"b", 20}});
  this->write("u", {{"", 0}});
  this->set_.write("notes.txt", "no shard");
  this->set_.write(std::string("folder/v") + TypeParam::kExtension, "not right in the folder");
  const auto images = this->open();
  EXPECT_EQ(images.name(), this->set_.path());
  EXPECT_EQ(images.size(), 4U);
  EXPECT_THAT(all_of(images), ElementsAre(Pair("a", 1), Pair("b", 20), Pair("c", 3), Pair("", 0)));
  EXPECT_THAT(images.blocks(), ElementsAre(2U, 1U, 1U));
  EXPECT_THAT(images.classes(), IsEmpty());
}

// A file of zeros and one that was cut to nothing look like this.
TYPED_TEST(ShardSources, RefuseAShardWithoutSamples) {
  this->write("train-0", {{"a", 1}});
  this->write("train-1", {});
  EXPECT_THAT(this->opening_message(),
              AllOf(HasSubstr(this->set_.path() + "/train-1" + TypeParam::kExtension), HasSubstr("found none")));
}

TYPED_TEST(ShardSources, RefuseAShardThatIsALinkToNowhere) {
  this->write("train-0", {{"a", 1}});
  std::filesystem::create_symlink("nowhere", this->set_.path() + "/train-1" + TypeParam::kExtension);
  EXPECT_THAT(this->opening_message(), AllOf(HasSubstr("/train-1"), HasSubstr("No such file")));
}

TYPED_TEST(ShardSources, TakeOneSplitByThePrefixOfItsNames) {
  this->write("data/train-0", {{"a", 1}});
  this->write("data/validation-0", {{"b", 2}});
  const auto images = this->open({.folder = "data", .prefix = "validation-"});
  EXPECT_EQ(images.name(), this->set_.path() + "/data");
  EXPECT_THAT(all_of(images), ElementsAre(Pair("b", 2)));
}

TYPED_TEST(ShardSources, InflateWhatIsCompressedAndReadItNoMore) {
  const std::string bytes = TypeParam::file({{"a", 1}, {"b", 2}});
  this->set_.write(std::string("a") + TypeParam::kExtension + ".gz", deflated(bytes, Wrapping::gzip));
  const auto images = this->open();
  StageClock clock;
  EXPECT_THAT(all_of(images), ElementsAre(Pair("a", 1), Pair("b", 2)));
  EXPECT_EQ(clock.counts().bytes, 0U);
}

TYPED_TEST(ShardSources, KnowTheNamesOfClassesThatLieBesideTheShards) {
  this->write("data/a", {{"a", 0}, {"b", 1}});
  this->set_.write("data/classes.txt", "cat\nsea dog\n");
  const auto images = this->open({.folder = "data"});
  EXPECT_THAT(images.classes(), ElementsAre("cat", "sea dog"));
  EXPECT_THAT(all_of(images), ElementsAre(Pair("a", 0), Pair("b", 1)));
}

TYPED_TEST(ShardSources, RefuseALabelWithoutANameWhereThereAreNames) {
  this->write("a", {{"x", 2}});
  this->set_.write("classes.txt", "cat\ndog\n");
  EXPECT_THAT(read_message(this->open(), 0),
              AllOf(HasSubstr(this->set_.path() + "/a" + TypeParam::kExtension), HasSubstr(TypeParam::kFirstLabel),
                    HasSubstr("found 2"), HasSubstr("below 2"), HasSubstr(this->set_.path() + "/classes.txt")));
}

TYPED_TEST(ShardSources, RefuseNamesOfClassesThatAreNone) {
  this->write("a", {{"a", 0}});
  this->set_.write("classes.txt", "cat\n\ndog\n");
  EXPECT_THAT(this->opening_message(), AllOf(HasSubstr(this->set_.path() + "/classes.txt"), HasSubstr("byte offset 4"),
                                             HasSubstr("empty line")));
}

TYPED_TEST(ShardSources, MakeTheIndexOnce) {
  using Source = typename TestFixture::Source;
  const TemporaryFolder folder;
  const auto storage = std::make_shared<MemoryStorage>();
  const std::string path = std::string("a") + TypeParam::kExtension;
  storage->put(path, TypeParam::file({{"a", 1}, {"b", 2}}));
  const typename TestFixture::Options options{.index_folder = folder.path()};
  EXPECT_EQ(Source(storage, options).size(), 2U);
  const auto before = storage->counts().bytes_read.load();
  EXPECT_EQ(Source(storage, options).size(), 2U);
  EXPECT_EQ(storage->counts().bytes_read, before);
  storage->put(path, TypeParam::file({{"c", 3}}), "2");
  EXPECT_THAT(all_of(Source(storage, options)), ElementsAre(Pair("c", 3)));
}

TYPED_TEST(ShardSources, TellShardsFromTheIndicesBesideThem) {
  this->write("a", {{"a", 1}});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(this->open({.index_folder = this->set_.path()}).size(), 1U);
}

TYPED_TEST(ShardSources, RefuseATruncatedFileAtOnce) {
  const std::string whole = TypeParam::file({{"a", 1}});
  const std::string name = std::string("a") + TypeParam::kExtension;
  for (const std::size_t length : {whole.size() / 2, whole.size() - 1}) {
    this->set_.write(name, whole.substr(0, length));
    EXPECT_THAT(this->opening_message(), AllOf(HasSubstr(name), HasSubstr("byte offset"), HasSubstr("truncated")))
        << length;
  }
}

TYPED_TEST(ShardSources, RefuseAFolderWithoutImages) {
  EXPECT_THAT(this->opening_message(), AllOf(HasSubstr(this->set_.path()), HasSubstr(TypeParam::kShards)));
  this->write("a", {});
  EXPECT_THAT(this->opening_message(), AllOf(HasSubstr(this->set_.path()), HasSubstr("found none")));
  EXPECT_THAT(this->opening_message({.folder = "missing"}), HasSubstr(this->set_.path() + "/missing"));
}

}  // namespace
}  // namespace libtrain::data
