// Makes a data set in COCO's format of circles, squares and triangles, to try the training of detectors anywhere:
//
//   make_shapes --output shapes
//   make_shapes --output shapes --train 100 --val 20 --size 160 --vary-size --crowds --seed 2
//
//   shapes/train2017/000000000001.png, ...    shapes/annotations/instances_train2017.json
//   shapes/val2017/000000000001.png, ...      shapes/annotations/instances_val2017.json
//
// A shape covers those that were drawn before it, and masks have only visible pixels: polygons, or runs of pixels if a
// part is covered. Random numbers, places and colours are integers, and polygons are filled as COCO's tools fill them,
// so that the same options give the same pixels and annotations on every machine. The annotations are written last:
// without them, a run was interrupted.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <limits>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/coco.hpp>
#include <libtrain/data/formats/run_length.hpp>
#include <libtrain/data/image/encode_png.hpp>
#include <libtrain/data/image/image.hpp>
#include <libtrain/data/sample_random.hpp>

#include "../without_ranks.hpp"

namespace lt = libtrain;
namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

constexpr int kTries = 100;       // to place a shape, and to find a colour
constexpr int kContrast = 48;     // of a shape, in at least one channel, to the background and to other shapes
constexpr int kGradient = 40;     // the largest change of a channel over the background
constexpr int kLeastVisible = 3;  // an object stays visible by a third at least
constexpr int kUnits = 100;       // per pixel: the corners are rounded to two decimals
constexpr int kDirections = 24;   // in which a corner can lie from the centre
constexpr std::int64_t kCosines = 1'000'000'000;
constexpr std::array<std::int64_t, kDirections / 4> kCosine{1'000'000'000, 965'925'826, 866'025'404,
                                                            707'106'781,   500'000'000, 258'819'045};

// Regular polygons, with corners in every direction, in every 6th or in every 8th.
struct Category {
  const char* name;
  int corners;
};
constexpr std::array<Category, 3> kCategories{{{"circle", kDirections}, {"square", 4}, {"triangle", 3}}};

struct Options {
  std::string output = {};
  int train = 800;
  int val = 100;
  int size = 128;
  int min_objects = 1;
  int max_objects = 4;
  int noise = 8;
  bool vary_size = false;
  bool crowds = false;
  std::uint64_t seed = 1;
};

// x0, y0, x1, y1, ... in pixels.
using Polygon = std::vector<double>;

// A shape, or a crowd of them.
struct Object {
  int category = 0;
  bool crowd = false;
  lt::data::FillColor color = {};
  std::vector<Polygon> polygons = {};
  std::uint64_t pixels = 0;  // visible or not
};

// In billionths; direction 6 is down.
std::int64_t cosine(int direction) {
  const int turned = (direction % kDirections + kDirections) % kDirections;
  const int half = std::min(turned, kDirections - turned);
  if (half == kDirections / 4) return 0;
  return half < kDirections / 4 ? kCosine.at(static_cast<std::size_t>(half))
                                : -kCosine.at(static_cast<std::size_t>(kDirections / 2 - half));
}

Polygon make_polygon(int category, int x, int y, int radius, int direction) {
  const int corners = kCategories.at(static_cast<std::size_t>(category)).corners;
  Polygon polygon;
  const auto coordinate = [&](int center, std::int64_t part) {
    // Rounded: divided after half of the divisor was added to a number that is not negative.
    const std::int64_t scaled = center * kCosines + radius * part + kCosines / 2;
    polygon.push_back(static_cast<double>(scaled / kCosines) / kUnits);
  };
  for (int corner = 0; corner < corners; ++corner) {
    const int towards = direction + corner * (kDirections / corners);
    coordinate(x, cosine(towards));
    coordinate(y, cosine(towards - kDirections / 4));
  }
  return polygon;
}

// An image while objects are placed in it. Masks are column-major, as in COCO.
class Picture {
 public:
  Picture(const Options& options, lt::data::SampleRandom random) : options_(options), random_(random) {
    width_ = options.vary_size ? random_.integer(options.size / 2, options.size) : options.size;
    height_ = options.vary_size ? random_.integer(options.size / 2, options.size) : options.size;
    owner_.assign(static_cast<std::size_t>(width_) * static_cast<std::size_t>(height_), 0);
    for (std::size_t channel = 0; channel < 3; ++channel) {
      const int first = random_.integer(0, 255);
      const int last = std::clamp(first + random_.integer(-kGradient, kGradient), 0, 255);
      background_.at(0).at(channel) = static_cast<std::uint8_t>(first);
      background_.at(1).at(channel) = static_cast<std::uint8_t>(last);
    }
    gradient_x_ = random_.integer(0, 1);
    gradient_y_ = random_.integer(0, 1);
    place_objects();
  }

  int width() const { return width_; }
  int height() const { return height_; }
  const std::vector<Object>& objects() const { return objects_; }

  /// The visible pixels of object `number`.
  lt::data::RunLength visible(std::size_t number) const {
    std::vector<std::uint8_t> mask(owner_.size());
    std::ranges::transform(owner_, mask.begin(), [&](std::size_t owner) { return owner == number + 1 ? 1 : 0; });
    return lt::data::encode_mask(mask, static_cast<std::uint32_t>(height_), static_cast<std::uint32_t>(width_));
  }

  /// The image, with noise. Call it once.
  lt::data::Image paint() {
    lt::data::Image image{.width = width_, .height = height_};
    for (int y = 0; y < height_; ++y) {
      for (int x = 0; x < width_; ++x) {
        const std::size_t owner = owner_[place(x, y)];
        const auto color = owner == 0 ? background_at(x, y) : objects_[owner - 1].color;
        for (const int value : color) {
          const int noisy = value + random_.integer(-options_.noise, options_.noise);
          image.pixels.push_back(static_cast<std::uint8_t>(std::clamp(noisy, 0, 255)));
        }
      }
    }
    return image;
  }

 private:
  std::size_t place(int x, int y) const {
    return static_cast<std::size_t>(x) * static_cast<std::size_t>(height_) + static_cast<std::size_t>(y);
  }

  int shorter_side() const { return std::min(width_, height_); }

  void place_objects() {
    const int wanted = random_.integer(options_.min_objects, options_.max_objects);
    const bool with_crowd = options_.crowds && random_.integer(0, 3) == 0;
    if (with_crowd) add(make_crowd());
    int placed = 0;
    for (int tried = 0; placed < wanted && tried < kTries; ++tried) placed += add(make_shape()) ? 1 : 0;
    if (placed >= options_.min_objects) return;
    throw lt::UsageError(lt::text("An image of ", width_, " x ", height_, " pixels has no place for ",
                                  options_.min_objects, " shapes. Lower --min-objects."));
  }

  Object make_shape() {
    const int side = shorter_side() * kUnits;
    const int radius = random_.integer(side / 10, side / 4);
    Object shape{.category = random_.integer(0, kCategories.size() - 1), .color = draw_color()};
    shape.polygons.push_back(draw_polygon(shape.category, radius, {0, 0, width_, height_}));
    return shape;
  }

  Object make_crowd() {
    const int side = shorter_side() / 2;
    const lt::data::Crop area{
        .x = random_.integer(0, width_ - side), .y = random_.integer(0, height_ - side), .width = side, .height = side};
    Object crowd{.category = random_.integer(0, kCategories.size() - 1), .crowd = true, .color = draw_color()};
    for (int number = random_.integer(6, 12); number > 0; --number) {
      crowd.polygons.push_back(
          draw_polygon(crowd.category, random_.integer(side * kUnits / 12, side * kUnits / 8), area));
    }
    return crowd;
  }

  Polygon draw_polygon(int category, int radius, const lt::data::Crop& area) {
    const int x = random_.integer(area.x * kUnits + radius, (area.x + area.width) * kUnits - radius);
    const int y = random_.integer(area.y * kUnits + radius, (area.y + area.height) * kUnits - radius);
    return make_polygon(category, x, y, radius, random_.integer(0, kDirections - 1));
  }

  // If many colours are taken, the last one that was tried is used.
  lt::data::FillColor draw_color() {
    lt::data::FillColor color{};
    for (int tried = 0; tried < kTries; ++tried) {
      for (auto& channel : color) channel = static_cast<std::uint8_t>(random_.integer(0, 255));
      const auto stands_out = [&](const lt::data::FillColor& a, const lt::data::FillColor& b) {
        for (std::size_t channel = 0; channel < 3; ++channel) {
          const auto [low, high] = std::minmax(a.at(channel), b.at(channel));
          if (color.at(channel) < low - kContrast || color.at(channel) > high + kContrast) return true;
        }
        return false;
      };
      if (stands_out(background_[0], background_[1]) &&
          std::ranges::all_of(objects_, [&](const Object& each) { return stands_out(each.color, each.color); })) {
        break;
      }
    }
    return color;
  }

  // Unless too little of an object would be left visible.
  bool add(Object object) {
    auto owner = owner_;
    for (const auto& polygon : object.polygons) {
      const lt::data::CocoObjects outline{.shapes = {.coordinates = polygon, .polygon_offsets = {0, polygon.size()}}};
      const auto runs = outline.mask({.polygons = 1, .kind = lt::data::CocoShape::polygons},
                                     static_cast<std::uint32_t>(height_), static_cast<std::uint32_t>(width_));
      std::vector<std::uint8_t> mask(owner.size());
      lt::data::decode_mask(runs, mask);
      for (std::size_t pixel = 0; pixel < mask.size(); ++pixel) {
        if (mask[pixel] != 0) owner[pixel] = static_cast<std::uint8_t>(objects_.size() + 1);
      }
    }
    std::vector<std::uint64_t> visible(objects_.size() + 2);
    for (const std::size_t each : owner) ++visible[each];
    object.pixels = visible.back();
    if (object.pixels == 0) return false;
    for (std::size_t number = 0; number < objects_.size(); ++number) {
      if (visible[number + 1] * kLeastVisible < objects_[number].pixels) return false;
    }
    owner_ = std::move(owner);
    objects_.push_back(std::move(object));
    return true;
  }

  lt::data::FillColor background_at(int x, int y) const {
    constexpr int kSteps = 256;
    const int along = (gradient_x_ * x * kSteps / width_ + gradient_y_ * y * kSteps / height_) / 2;
    lt::data::FillColor color{};
    for (std::size_t channel = 0; channel < 3; ++channel) {
      color.at(channel) = static_cast<std::uint8_t>(
          (background_[0].at(channel) * (kSteps - along) + background_[1].at(channel) * along) / kSteps);
    }
    return color;
  }

  const Options& options_;
  lt::data::SampleRandom random_;
  int width_ = 0;
  int height_ = 0;
  std::array<lt::data::FillColor, 2> background_ = {};  // at the beginning and at the end of the gradient
  int gradient_x_ = 0;
  int gradient_y_ = 0;
  std::vector<Object> objects_ = {};
  std::vector<std::uint8_t> owner_ = {};  // of each pixel: the object's number from 1 on, 0 for the background
};

Json segmentation_of(const Object& object, const lt::data::RunLength& visible) {
  if (!object.crowd && lt::data::mask_area(visible) == object.pixels) return object.polygons;
  return {{"size", {visible.height, visible.width}}, {"counts", visible.counts}};
}

// train2017 or val2017.
class Split {
 public:
  Split(const Options& options, std::string name, std::uint64_t number)
      : options_(options), name_(std::move(name)), number_(number) {}

  void write_images(int count) {
    const auto folder = fs::path(options_.output) / name_;
    for (int id = 1; id <= count; ++id) {
      Picture picture(options_, {options_.seed, number_, static_cast<std::uint64_t>(id)});
      std::ostringstream file_name;
      file_name << std::setw(12) << std::setfill('0') << id << ".png";
      lt::data::write_png(picture.paint(), (folder / file_name.str()).string());
      images_.push_back(
          {{"id", id}, {"file_name", file_name.str()}, {"width", picture.width()}, {"height", picture.height()}});
      for (std::size_t object = 0; object < picture.objects().size(); ++object) annotate(picture, object, id);
    }
  }

  void write_annotations() const {
    const auto path = fs::path(options_.output) / "annotations" / ("instances_" + name_ + ".json");
    Json categories = Json::array();
    for (const auto& category : kCategories) {
      categories.push_back({{"id", categories.size() + 1}, {"name", category.name}, {"supercategory", "shape"}});
    }
    const Json all{{"info", {{"description", "Shapes, made by make_shapes of libtrain"}, {"seed", options_.seed}}},
                   {"images", images_},
                   {"categories", categories},
                   {"annotations", annotations_}};
    const auto unfinished = path.string() + ".partial";
    std::ofstream file(unfinished, std::ios::binary);
    file << all << '\n';
    file.close();
    if (!file) {
      throw lt::EnvironmentError("Cannot write '" + unfinished + "'. Check the permissions and the space on the disk.");
    }
    fs::rename(unfinished, path);
    std::cout << name_ << ": " << images_.size() << " images, " << annotations_.size() << " objects, " << covered_
              << " of them partly covered\n";
  }

 private:
  void annotate(const Picture& picture, std::size_t number, int image) {
    const Object& object = picture.objects()[number];
    const auto visible = picture.visible(number);
    const auto area = lt::data::mask_area(visible);
    const auto box = lt::data::mask_box(visible);
    const auto whole = [](double value) { return static_cast<int>(value); };
    if (area < object.pixels) ++covered_;
    annotations_.push_back({{"id", annotations_.size() + 1},
                            {"image_id", image},
                            {"category_id", object.category + 1},
                            {"bbox", {whole(box.x), whole(box.y), whole(box.width), whole(box.height)}},
                            {"area", area},
                            {"iscrowd", object.crowd ? 1 : 0},
                            {"segmentation", segmentation_of(object, visible)}});
  }

  const Options& options_;
  std::string name_;
  std::uint64_t number_;  // apart from other splits for random numbers
  Json images_ = Json::array();
  Json annotations_ = Json::array();
  int covered_ = 0;
};

void make_folders(const Options& options) {
  const fs::path output = options.output;
  if (fs::exists(output) && !(fs::is_directory(output) && fs::is_empty(output))) {
    throw lt::UsageError("'" + options.output + "' is not an empty folder. Choose another one for --output.");
  }
  for (const auto& [name, count] : {std::pair{"train2017", options.train}, std::pair{"val2017", options.val}}) {
    if (count > 0) fs::create_directories(output / name);
  }
  fs::create_directories(output / "annotations");
}

void make_shapes(const Options& options) {
  if (options.min_objects > options.max_objects) {
    throw lt::UsageError("--min-objects is greater than --max-objects. Change one of them.");
  }
  if (options.train + options.val == 0) throw lt::UsageError("--train and --val are 0. Give a number of images.");
  make_folders(options);
  try {
    Split train(options, "train2017", 0);
    Split val(options, "val2017", 1);
    train.write_images(options.train);
    val.write_images(options.val);
    if (options.train > 0) train.write_annotations();
    if (options.val > 0) val.write_annotations();
  } catch (const lt::UsageError&) {  // the next command may have the same --output
    for (const auto* const name : {"train2017", "val2017", "annotations"})
      fs::remove_all(fs::path(options.output) / name);
    throw;
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Makes images of circles, squares and triangles with annotations in COCO's format."};
  Options options;
  app.add_option("--output", options.output, "The folder to write to, new or empty")->required();
  app.add_option("--train", options.train, "Number of images in train2017")
      ->capture_default_str()
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--val", options.val, "Number of images in val2017")
      ->capture_default_str()
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--size", options.size, "Pixels of each side")->capture_default_str()->check(CLI::Range(32, 4096));
  app.add_option("--min-objects", options.min_objects, "Smallest number of shapes in an image")
      ->capture_default_str()
      ->check(CLI::Range(0, 20));
  app.add_option("--max-objects", options.max_objects, "Largest number of shapes in an image")
      ->capture_default_str()
      ->check(CLI::Range(1, 20));
  app.add_option("--noise", options.noise, "Largest change of a value of a pixel by noise")
      ->capture_default_str()
      ->check(CLI::Range(0, 255));
  app.add_flag("--vary-size", options.vary_size, "Draw each side from half of --size to --size");
  app.add_flag("--crowds", options.crowds, "Add a crowd, annotated as one region, to a quarter of the images");
  app.add_option("--seed", options.seed, "Seed of all random numbers")
      ->capture_default_str()
      ->check(
          CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()));  // negative ones would wrap around
  return run_without_ranks(app, argc, argv, "make_shapes", [&] {
    try {
      make_shapes(options);
    } catch (const std::system_error& error) {  // of the file system
      throw lt::EnvironmentError(std::string(error.what()) + ". Choose another --output, or change its permissions.");
    }
    if (!std::cout.flush()) throw lt::EnvironmentError("Cannot print the result. Check the space on the disk.");
  });
}
