#include <libtrain/data/detection.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/nonzero.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/data_loader.hpp>
#include <libtrain/data/formats/tar.hpp>
#include <libtrain/data/image/encode_png.hpp>
#include <libtrain/data/storage/open_storage.hpp>

#include <tests/data/storage/memory_storage.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using libtrain::test::read_file;
using libtrain::test::TemporaryFolder;
using libtrain::test::write_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// An object whose pixels are red if it is a polygon, and green if it is a crowd.
struct Object {
  int x = 0;
  int y = 0;
  int width = 0;
  int height = 0;
  int category = 0;
  bool crowd = false;
};

// Runs of a rectangle down the columns, as uncompressed COCO masks have them.
nlohmann::json runs_of(const Object& object, int width, int height) {
  std::vector<int> counts{object.x * height + object.y};
  for (int column = 0; column < object.width; ++column) {
    counts.push_back(object.height);
    counts.push_back(height - object.height);
  }
  counts.back() = (width - object.x - object.width) * height + height - object.y - object.height;
  return {{"counts", counts}, {"size", {height, width}}};
}

// Images of different sizes with rectangles in them.
class Pictures {
 public:
  void add(int width, int height, const std::vector<Object>& objects) {
    const int id = static_cast<int>(images_.size()) + 1;
    Image picture{.width = width, .height = height, .pixels = {}};
    picture.pixels.resize(picture.row_bytes() * static_cast<std::size_t>(height));
    for (const auto& object : objects) {
      for (int y = object.y; y < object.y + object.height; ++y) {
        for (int x = object.x; x < object.x + object.width; ++x) picture.row(y)[3 * x + (object.crowd ? 1 : 0)] = 255;
      }
      const int right = object.x + object.width;
      const int bottom = object.y + object.height;
      const nlohmann::json polygon{{object.x, object.y, right, object.y, right, bottom, object.x, bottom}};
      annotations_.push_back({{"id", annotations_.size() + 1},
                              {"image_id", id},
                              {"category_id", object.category},
                              {"bbox", {object.x, object.y, object.width, object.height}},
                              {"area", object.width * object.height},
                              {"iscrowd", object.crowd ? 1 : 0},
                              {"segmentation", object.crowd ? runs_of(object, width, height) : polygon}});
    }
    const auto name = std::to_string(id) + ".png";
    const auto bytes = encode_png(picture);
    std::filesystem::create_directories(folder_.path() / "train");
    write_file((folder_.path() / "train" / name).string(), {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    images_.push_back({{"id", id}, {"file_name", name}, {"width", width}, {"height", height}});
  }

  void add_category(int id, const std::string& name) { categories_.push_back({{"id", id}, {"name", name}}); }

  /// Moves the images to tar archives of one image each, the last one first.
  void archive() const {
    for (std::size_t image = images_.size(); image > 0; --image) {
      const auto name = text(image, ".png");
      const auto path = folder_.path() / "train" / name;
      TarWriter tar((folder_.path() / "train" / text(images_.size() - image, ".tar")).string());
      tar.add(name, read_file(path.string()));
      tar.finish();
      std::filesystem::remove(path);
    }
  }

  CocoDetection open(const CocoDetectionOptions& options) const {
    write_file((folder_.path() / "instances.json").string(), instances());
    return CocoDetection(open_storage(folder_.path().string()), "train", "instances.json", options);
  }

  std::string instances() const {
    return nlohmann::json{{"images", images_}, {"annotations", annotations_}, {"categories", categories_}}.dump();
  }

  std::string path(int image) const { return (folder_.path() / "train" / text(image, ".png")).string(); }

 private:
  TemporaryFolder folder_;
  std::vector<nlohmann::json> images_;
  std::vector<nlohmann::json> annotations_;
  std::vector<nlohmann::json> categories_{
      {{"id", 7}, {"name", "square"}}, {{"id", 3}, {"name", "line"}}, {{"id", 20}, {"name", "heap"}}};
};

CocoDetectionOptions resized_to(int side, double flip_probability) {
  return {.images = {.shorter_side = ShorterSide{.min_size = side, .max_size = 4 * side},
                     .flip_probability = flip_probability,
                     .normalization = {.mean = {0, 0, 0}, .standard_deviation = {1, 1, 1}}}};
}

// Left, top, right, bottom of the pixels of a channel that are more than half there.
std::vector<double> lit_box(const at::Tensor& image, std::int64_t channel) {
  const at::Tensor places = image[channel].gt(0.5).nonzero();
  const auto first = std::get<0>(places.min(0));
  const auto last = std::get<0>(places.max(0)) + 1;
  return {first[1].item<double>(), first[0].item<double>(), last[1].item<double>(), last[0].item<double>()};
}

void expect_box(const at::Tensor& box, const std::vector<double>& expected) {
  for (std::int64_t side = 0; side < 4; ++side) {
    EXPECT_NEAR(box[side].item<double>(), expected[static_cast<std::size_t>(side)], 0.75) << "side " << side;
  }
}

double overlap(const at::Tensor& mask, const at::Tensor& lit) {
  const auto is_in = mask.eq(1);
  return is_in.logical_and(lit).sum().item<double>() / is_in.logical_or(lit).sum().item<double>();
}

TEST(CocoDetection, BoxesAndMasksFollowThePixels) {
  Pictures pictures;
  pictures.add(60, 40,
               {{.x = 6, .y = 10, .width = 20, .height = 12, .category = 7},
                {.x = 36, .y = 4, .width = 16, .height = 30, .category = 20, .crowd = true}});
  for (const double flip : {0.0, 1.0}) {
    for (const int side : {40, 100, 23}) {
      const CocoDetection set = pictures.open(resized_to(side, flip));
      const DetectionSample sample = set.sample(0);
      ASSERT_EQ(sample.image.sizes(), (at::IntArrayRef{3, side, 60 * side / 40}));
      const DetectionTarget& target = sample.target;
      ASSERT_EQ(target.masks.sizes(), (at::IntArrayRef{2, side, 60 * side / 40}));
      for (std::int64_t object = 0; object < 2; ++object) {
        expect_box(target.boxes[object], lit_box(sample.image, object));
        EXPECT_GT(overlap(target.masks[object], sample.image[object].gt(0.5)), 0.9) << side << " pixels, flip " << flip;
      }
    }
  }
}

TEST(CocoDetection, ReadsArchivesLikeFiles) {
  Pictures pictures;
  for (const int width : {60, 50, 70}) {
    pictures.add(width, 40, {{.x = 6, .y = 10, .width = width - 40, .height = 12, .category = 7}});
  }
  const auto options = resized_to(40, 0);
  const CocoDetection files = pictures.open(options);
  std::vector<DetectionSample> expected;
  for (std::uint64_t k = 0; k < 3; ++k) expected.push_back(files.sample(k));
  pictures.archive();
  const CocoDetection archives = pictures.open(options);
  ASSERT_EQ(archives.size(), 3U);
  for (std::uint64_t k = 0; k < 3; ++k) {
    const DetectionSample sample = archives.sample(k);
    EXPECT_TRUE(sample.image.equal(expected[k].image)) << k;
    EXPECT_TRUE(sample.target.masks.equal(expected[k].target.masks)) << k;
    EXPECT_THAT(archives.origin(k).path, HasSubstr(text(2 - k, ".tar/", k + 1, ".png")));
  }
  EXPECT_EQ(archives.identity(), files.identity());
}

TEST(CocoDetection, CropsCutObjectsOffAndLeaveOutWhatIsGone) {
  Pictures pictures;
  pictures.add(64, 64,
               {{.x = 0, .y = 20, .width = 20, .height = 20, .category = 7},
                {.x = 44, .y = 20, .width = 20, .height = 20, .category = 3}});
  CocoDetectionOptions options = resized_to(64, 0.5);
  options.images.shorter_side = {};
  options.images.random_resized_crop = RandomResizedCropOptions{.scale = {0.2, 0.4}};
  options.images.width = options.images.height = 48;
  const CocoDetection set = pictures.open(options);
  int cut = 0;
  int gone = 0;
  for (std::uint64_t epoch = 0; epoch < 40; ++epoch) {
    SampleRandom random(1, epoch, 0);
    const DetectionSample sample = set.get(0, random);
    const auto objects = sample.target.boxes.size(0);
    ASSERT_EQ(sample.target.masks.size(0), objects);
    gone += objects < 2 ? 1 : 0;
    // Both are red: together they cover the red pixels.
    const at::Tensor lit = sample.image[0].gt(0.5);
    if (objects == 0) {
      EXPECT_LT(lit.sum().item<double>(), 100);
      continue;
    }
    EXPECT_GT(overlap(sample.target.masks.amax(0), lit), 0.8) << "epoch " << epoch;
    EXPECT_GE(sample.target.boxes.min().item<float>(), 0);
    EXPECT_LE(sample.target.boxes.max().item<float>(), 48);
    cut += sample.target.boxes.min().item<float>() == 0 ? 1 : 0;
  }
  EXPECT_GT(cut, 5);
  EXPECT_GT(gone, 5);
}

TEST(CocoDetection, ScalesImagesAtRandomWithTheirObjects) {
  Pictures pictures;
  pictures.add(64, 48,
               {{.x = 4, .y = 10, .width = 20, .height = 20, .category = 7},
                {.x = 40, .y = 20, .width = 20, .height = 20, .category = 20, .crowd = true}});
  CocoDetectionOptions options = resized_to(64, 0.5);
  options.images.shorter_side = {};
  options.images.scale_jitter = ScaleJitter{.width = 64, .height = 64, .scale = {0.4, 2}};
  const CocoDetection set = pictures.open(options);
  std::set<std::int64_t> widths;
  for (std::uint64_t epoch = 0; epoch < 40; ++epoch) {
    SampleRandom random(1, epoch, 0);
    const DetectionSample sample = set.get(0, random);
    widths.insert(sample.image.size(2));
    for (std::int64_t object = 0; object < sample.target.labels.size(0); ++object) {
      const std::int64_t channel = sample.target.crowd[object].item<bool>() ? 1 : 0;
      EXPECT_GT(overlap(sample.target.masks[object], sample.image[channel].gt(0.5)), 0.75) << "epoch " << epoch;
    }
  }
  EXPECT_EQ(*widths.rbegin(), 64);
  EXPECT_GT(widths.size(), 8U);
}

TEST(CocoDetection, PastesObjectsOfOtherImages) {
  Pictures pictures;
  pictures.add(60, 40, {{.x = 2, .y = 2, .width = 20, .height = 30, .category = 7}});
  pictures.add(50, 40, {{.x = 20, .y = 8, .width = 20, .height = 30, .category = 3}});
  CocoDetectionOptions options = resized_to(40, 0);
  options.copy_paste = 1;
  const CocoDetection set = pictures.open(options);
  int pasted = 0;
  for (std::uint64_t epoch = 0; epoch < 200; ++epoch) {
    SampleRandom random(1, epoch, 0);
    const DetectionSample sample = set.get(0, random);
    ASSERT_EQ(sample.image.sizes(), (at::IntArrayRef{3, 40, 60}));
    // All are red: together they cover the red pixels.
    EXPECT_GT(overlap(sample.target.masks.amax(0), sample.image[0].gt(0.5)), 0.9) << "epoch " << epoch;
    for (std::int64_t object = 0; object < sample.target.labels.size(0); ++object) {
      pasted += sample.target.labels[object].item<int>() == 1 ? 1 : 0;  // "line" has the smallest id
    }
    SampleRandom same(1, epoch, 0);
    EXPECT_TRUE(set.get(0, same).image.equal(sample.image));
  }
  EXPECT_NEAR(pasted, 50, 5 * 6.2);  // the other image and its object, with a probability of a half each

  options.copy_paste = 1.5;
  EXPECT_THAT(message_of<UsageError>([&] { pictures.open(options); }), HasSubstr("copy_paste is 1.5"));
  options.copy_paste = 0.5;
  options.masks = false;
  EXPECT_THAT(message_of<UsageError>([&] { pictures.open(options); }), HasSubstr("by their masks"));
}

// Three images, of which the last cannot be read.
void add_three_pictures(Pictures& pictures) {
  for (int image = 0; image < 3; ++image) {
    pictures.add(40, 40, {{.x = 2, .y = 2, .width = 20, .height = 30, .category = 7}});
  }
  write_file(pictures.path(3), "no image");
}

TEST(CocoDetection, PastesNothingOfAnImageThatCannotBeRead) {
  Pictures pictures;
  add_three_pictures(pictures);
  CocoDetectionOptions options = resized_to(40, 0);
  const at::Tensor plain = pictures.open(options).sample(0).image;
  options.copy_paste = 1;
  const CocoDetection set = pictures.open(options);
  for (std::uint64_t epoch = 0; epoch < 50; ++epoch) {
    SampleRandom random(1, epoch, 0);
    EXPECT_TRUE(set.get(0, random).image.equal(plain));  // the objects of both readable ones are in the same place
  }
  SampleRandom random(1, 0, 2);
  EXPECT_THROW(set.get(2, random), EnvironmentError);

  const LoaderOptions loading{.batch_size = 1, .workers = 0, .bad_samples = {.maximum_count = 1, .maximum_rate = 1}};
  DataLoaderOf loader(set, [](const auto& samples) { return pad_detections(samples); }, loading);
  for (std::uint64_t epoch = 0; epoch < 10; ++epoch) {
    for (auto& batch : loader.epoch(epoch)) EXPECT_EQ(batch.targets.size(), 1U);
  }
  EXPECT_EQ(loader.statistics().bad_samples, 1U);
}

TEST(CocoDetection, EndsWhereTheStoreOfAnImageToPasteFails) {
  Pictures pictures;
  add_three_pictures(pictures);
  const auto storage = std::make_shared<test::MemoryStorage>();
  storage->put("instances.json", pictures.instances());
  for (int image = 1; image <= 3; ++image) storage->put(text("train/", image, ".png"), read_file(pictures.path(image)));
  storage->before_read = [](const std::string& path, std::uint64_t) {
    if (path == "train/3.png") throw StorageUnavailable("the store does not answer");
  };
  CocoDetectionOptions options = resized_to(40, 0);
  options.copy_paste = 1;
  const CocoDetection set(storage, "train", "instances.json", options);
  EXPECT_THROW(
      {
        for (std::uint64_t epoch = 0; epoch < 50; ++epoch) {
          SampleRandom random(1, epoch, 0);
          set.get(0, random);
        }
      },
      StorageUnavailable);
}

TEST(CocoDetection, LabelsAreTheCategoriesByIdFromOneOn) {
  Pictures pictures;
  pictures.add(30, 30,
               {{.x = 1, .y = 1, .width = 5, .height = 5, .category = 20},
                {.x = 9, .y = 9, .width = 5, .height = 4, .category = 3}});
  const CocoDetection set = pictures.open(resized_to(30, 0));
  const DetectionTarget target = set.sample(0).target;
  EXPECT_EQ(target.labels[0].item<std::int64_t>(), 3);
  EXPECT_EQ(target.labels[1].item<std::int64_t>(), 1);
  EXPECT_EQ(target.area[1].item<float>(), 20);
  EXPECT_EQ(target.image_id, 1);
  EXPECT_EQ(set.classes().front().name, "line");
}

TEST(CocoDetection, LabelsMayBeTheIdsOfCategories) {
  Pictures pictures;
  pictures.add(30, 30,
               {{.x = 1, .y = 1, .width = 5, .height = 5, .category = 20},
                {.x = 9, .y = 9, .width = 5, .height = 4, .category = 3}});
  CocoDetectionOptions options = resized_to(30, 0);
  options.labels_are_ids = true;
  const CocoDetection set = pictures.open(options);
  const DetectionTarget target = set.sample(0).target;
  EXPECT_EQ(target.labels[0].item<std::int64_t>(), 20);
  EXPECT_EQ(target.labels[1].item<std::int64_t>(), 3);
  ASSERT_EQ(set.classes().size(), 20U);
  for (std::size_t k = 0; k < 20; ++k) EXPECT_EQ(set.classes()[k].id, static_cast<std::int64_t>(k) + 1);
  EXPECT_EQ(set.classes()[2].name, "line");
  EXPECT_EQ(set.classes()[6].name, "square");
  EXPECT_EQ(set.classes()[7].name, "no category 8");
  EXPECT_EQ(set.classes()[19].name, "heap");
  EXPECT_EQ(set.annotations().find_category(7), 6U);
  pictures.add_category(0, "nothing");
  EXPECT_THAT(message_of<EnvironmentError>([&] { pictures.open(options); }),
              AllOf(HasSubstr("instances.json' has the category 0, 'nothing'"), HasSubstr("1 to 65535")));
}

TEST(CocoDetection, LeavesOutPicturesWithoutObjectsForTrainingAlone) {
  Pictures pictures;
  pictures.add(30, 30, {});
  pictures.add(30, 30, {{.x = 1, .y = 1, .width = 5, .height = 5, .category = 3, .crowd = true}});
  pictures.add(30, 30, {{.x = 1, .y = 1, .width = 5, .height = 5, .category = 3}});
  CocoDetectionOptions options = resized_to(30, 0);
  EXPECT_EQ(pictures.open(options).size(), 1u);
  EXPECT_EQ(pictures.open(options).sample(0).target.image_id, 3);
  options.use = CocoUse::evaluation;
  const CocoDetection all = pictures.open(options);
  EXPECT_EQ(all.size(), 3u);
  EXPECT_EQ(all.sample(0).target.boxes.sizes(), (at::IntArrayRef{0, 4}));
  EXPECT_TRUE(all.sample(1).target.crowd[0].item<bool>());
  options.masks = false;
  EXPECT_FALSE(pictures.open(options).sample(1).target.masks.defined());
}

TEST(CocoDetection, APictureOfAnotherSizeThanAnnotatedIsBad) {
  Pictures pictures;
  pictures.add(30, 20, {{.x = 1, .y = 1, .width = 5, .height = 5, .category = 3}});
  pictures.add(40, 20, {{.x = 1, .y = 1, .width = 5, .height = 5, .category = 3}});
  const CocoDetection set = pictures.open(resized_to(20, 0));
  const std::filesystem::path first = set.origin(0).path;
  std::filesystem::copy_file(set.origin(1).path, first, std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(message_of<EnvironmentError>([&] { set.sample(0); }),
              AllOf(HasSubstr("1.png"), HasSubstr("40 x 20"), HasSubstr("30 x 20")));
}

TEST(CocoDetection, RefusesAugmentationsThatMoveThePixelsAlone) {
  const Pictures pictures;
  EXPECT_THROW(pictures.open({.images = {.shorter_side = ShorterSide{}, .trivial_augment = true}}), UsageError);
  EXPECT_THROW(pictures.open({.images = {.shorter_side = ShorterSide{}, .rand_augment = RandAugmentOptions{}}}),
               UsageError);
}

TEST(CocoDetection, KnowsItsAnnotations) {
  Pictures pictures;
  pictures.add(30, 20, {{.x = 1, .y = 1, .width = 5, .height = 5, .category = 3}});
  const auto identity = pictures.open(resized_to(20, 0)).identity();
  EXPECT_EQ(pictures.open(resized_to(40, 1)).identity(), identity);
  Pictures others;
  others.add(30, 20, {{.x = 1, .y = 1, .width = 5, .height = 6, .category = 3}});
  EXPECT_NE(others.open(resized_to(20, 0)).identity(), identity);
}

TEST(PadDetections, PutsPicturesTopLeft) {
  const DetectionBatch batch =
      pad_detections({{at::full({3, 4, 6}, 1, at::kFloat), {}}, {at::full({3, 5, 2}, 2, at::kFloat), {}}}, 4);
  EXPECT_EQ(batch.images.sizes(), (at::IntArrayRef{2, 3, 8, 8}));
  EXPECT_EQ(batch.images[0].sum().item<double>(), 3 * 4 * 6);
  EXPECT_EQ(batch.images[1].narrow(1, 0, 5).narrow(2, 0, 2).sum().item<double>(), 2 * 3 * 5 * 2);
  EXPECT_EQ(batch.sizes[1][0].item<std::int64_t>(), 5);
  EXPECT_EQ(batch.targets.size(), 2u);
  EXPECT_EQ(pad_detections({}).images.sizes(), (at::IntArrayRef{0, 3, 0, 0}));
  EXPECT_THROW(pad_detections({}, 0), UsageError);
}

TEST(PadDetections, FillsPaddingWithZeros) {
  auto& context = at::globalContext();
  context.setDeterministicAlgorithms(true, false);  // new memory is NaN
  const auto images = pad_detections({{at::full({3, 4, 6}, 1, at::kFloat), {}},
                                      {at::full({3, 5, 2}, 2, at::kFloat), {}},
                                      {at::full({3, 8, 8}, 3, at::kFloat), {}}},
                                     8)
                          .images;
  const bool was_filled = at::empty({1}, at::kFloat).isnan().item<bool>();
  context.setDeterministicAlgorithms(false, false);
  ASSERT_TRUE(was_filled);
  EXPECT_EQ(images[0].sum().item<double>(), 3 * 4 * 6);
  EXPECT_EQ(images[1].sum().item<double>(), 2 * 3 * 5 * 2);
  EXPECT_EQ(images[2].sum().item<double>(), 3 * 3 * 8 * 8);
}

// All numbers of each image, by its id, mirrored or not.
using Found = std::map<std::int64_t, std::pair<double, double>>;

void note(Found& found, const DetectionBatch& batch) {
  for (std::size_t k = 0; k < batch.targets.size(); ++k) {
    const auto& target = batch.targets[k];
    const std::pair read{batch.images[static_cast<std::int64_t>(k)].sum().item<double>(),
                         target.boxes[0][0].item<double>()};
    EXPECT_TRUE(found.emplace(target.image_id, read).second) << target.image_id << " was read twice";
  }
}

TEST(CocoDetection, IsShuffledShardedAndResumed) {
  Pictures pictures;
  for (int k = 0; k < 23; ++k) {
    pictures.add(20 + k, 43 - k, {{.x = 1, .y = 2, .width = 5 + k / 2, .height = 6, .category = 7}});
  }
  const CocoDetection set = pictures.open(resized_to(24, 0.5));
  const auto pad = [](const std::vector<DetectionSample>& samples) { return pad_detections(samples); };
  const auto options = [](std::uint64_t batch_size) {
    return LoaderOptions{.batch_size = batch_size, .seed = 4, .remainder = Remainder::exact};
  };
  Found alone;
  DataLoaderOf whole(set, pad, options(6));
  for (auto& batch : whole.epoch(2)) note(alone, batch);
  EXPECT_EQ(alone.size(), 23u);

  Found parts;
  LoaderState state;
  for (int rank = 0; rank < 2; ++rank) {
    DataLoaderOf loader(set, pad, options(3), Shard{rank, 2});
    auto epoch = loader.epoch(2);
    note(parts, *epoch.next());
    note(parts, *epoch.next());
    state = epoch.state();
  }
  for (int rank = 0; rank < 3; ++rank) {
    DataLoaderOf loader(set, pad, options(2), Shard{rank, 3});
    for (auto& batch : loader.resume(LoaderState::from_text(state.to_text()))) note(parts, batch);
  }
  EXPECT_EQ(parts, alone);
}

TEST(CocoDetection, GroupsTheImagesThatItHas) {
  Pictures pictures;
  const std::vector<Object> object{{.x = 1, .y = 1, .width = 5, .height = 5, .category = 3}};
  pictures.add(20, 20, {});  // without an object: left out
  pictures.add(40, 20, object);
  pictures.add(20, 40, object);
  pictures.add(30, 30, object);
  const CocoDetection set = pictures.open(resized_to(20, 0));
  EXPECT_THAT(set.aspect_ratio_groups(), ElementsAre(1, 7, 4));
  EXPECT_THAT(set.aspect_ratio_groups(0), ElementsAre(0, 1, 1));
}

TEST(CocoDetection, HasImagesOfOneShapeInAGlobalBatch) {
  Pictures pictures;
  for (int k = 0; k < 24; ++k) {
    pictures.add(k % 3 == 0 ? 24 : 48, k % 3 == 0 ? 48 : 24,
                 {{.x = 1, .y = 2, .width = 5, .height = 6, .category = 7}});
  }
  const CocoDetection set = pictures.open(resized_to(24, 0.5));
  const auto pad = [](const std::vector<DetectionSample>& samples) { return pad_detections(samples, 24); };
  const LoaderOptions options{.batch_size = 2, .seed = 4, .groups = set.aspect_ratio_groups(), .group_chunk = 4};
  std::vector<DetectionBatch> batches[2];
  LoaderState state;
  for (int rank = 0; rank < 2; ++rank) {
    DataLoaderOf loader(set, pad, options, Shard{rank, 2});
    auto epoch = loader.epoch(1);
    while (auto batch = epoch.next()) batches[rank].push_back(*batch);
    state = epoch.state();
  }
  ASSERT_EQ(batches[0].size(), 6u);
  ASSERT_EQ(batches[1].size(), 6u);
  int portraits = 0;
  for (std::size_t step = 0; step < 6; ++step) {
    const auto shape = batches[0][step].images.sizes();
    EXPECT_EQ(batches[0][step].images.numel(), 2 * 3 * 24 * 48) << "step " << step << " is padded";
    EXPECT_EQ(batches[1][step].images.sizes(), shape) << "step " << step;
    portraits += shape[2] == 48 ? 1 : 0;
  }
  EXPECT_EQ(portraits, 2);

  DataLoaderOf same(set, pad, options);
  EXPECT_NO_THROW(same.resume(state));
  LoaderOptions other = options;
  other.groups = set.aspect_ratio_groups(0);
  DataLoaderOf with_others(set, pad, other);
  EXPECT_THAT(message_of<UsageError>([&] { with_others.resume(state); }), HasSubstr("groups, group_chunk"));
}

}  // namespace
}  // namespace libtrain::data
