// Finds objects in images with a trained Mask R-CNN, in one process on the CPU:
//
//   segment --weights outputs/model.safetensors photos             photos/a.jpg becomes segmented/a.png
//   segment --weights outputs/model.safetensors --json photos      a list of what was found
//   segment --weights maskrcnn_resnet50_fpn_coco.pth --model resnet50 --norm-epsilon 0 cat.jpg
//
// An image is given as a file, or as a folder, for all .jpg, .jpeg and .png files below it; a URI is one of a file if
// it ends like that. Weights that train_mask_rcnn has written name their model and classes. Those of torchvision do
// not: then labels are numbers.

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <libtrain/libtrain.hpp>
#include <libtrain/models/mask_rcnn/image_batch.hpp>
#include <libtrain/models/mask_rcnn/mask_rcnn.hpp>

#include "../detected_objects.hpp"
#include "../image_files.hpp"
#include "../without_ranks.hpp"

namespace lt = libtrain;
namespace models = libtrain::models;

namespace {

constexpr int kSmallImage = 300;  // pixels of the shorter side: labels would hide what is smaller
constexpr int kEnlarged = 4;

struct Options {
  std::string model = {};
  std::string weights = {};
  std::int64_t classes = 91;
  double norm_epsilon = -1;  // that of the weights
  double score_threshold = 0.5;
  std::string precision = "auto";
  bool as_json = false;
  std::string output = "segmented";
  std::vector<std::string> images = {};
};

// An image as the network sees it, and as it is drawn on.
struct Photo {
  std::string name = {};
  lt::data::Image pixels = {};
  torch::Tensor seen = {};  // [3, H, W]
};

Photo read_photo(const ImageFile& image, const lt::DetectorInfo& info) {
  const auto file = image.open();
  Photo photo{.name = file->name()};
  const auto bytes = lt::data::read_all(*file, kLargestImageFile);
  const auto encoded = std::as_bytes(std::span{bytes});
  photo.pixels = lt::data::decode_image(encoded, {.name = photo.name});
  lt::data::ImagePipeline pipeline{
      {.shorter_side = lt::data::ShorterSide{.min_size = info.min_size, .max_size = info.max_size}}};
  lt::data::SampleRandom random(0, 0, 0);  // nothing is drawn from it
  const auto plan = pipeline.plan(lt::data::read_image_header(encoded, photo.name), random, photo.name);
  photo.seen = torch::empty({3, plan.geometry.height, plan.geometry.width});
  pipeline.render(plan, encoded, photo.name, random,
                  {static_cast<std::byte*>(photo.seen.mutable_data_ptr()), pipeline.bytes(plan)});
  return photo;
}

models::MaskRcnn load_model(const Options& options, const lt::DetectorInfo& info) {
  if (info.model.empty()) {
    throw lt::UsageError("'" + options.weights + "' does not name its model. Give it as --model, such as resnet50.");
  }
  models::MaskRcnnOptions model_options;
  model_options.classes = info.classes.empty() ? options.classes : 1 + std::ssize(info.classes);
  model_options.boxes.score_threshold = std::min(model_options.boxes.score_threshold, options.score_threshold);
  model_options.frozen_batch_norm = info.frozen_batch_norm;
  model_options.norm_epsilon = options.norm_epsilon < 0 ? info.norm_epsilon : options.norm_epsilon;
  auto model = models::make_mask_rcnn(info.model, model_options);
  lt::LoadWeightsOptions loading;
  for (const auto& [from, to] : models::renamed_mask_rcnn_tensors()) loading.rename.push_back({from, to});
  lt::load_weights(*model, options.weights, loading);
  lt::to_channels_last(*model);
  model->eval();
  return model;
}

at::ScalarType forward_type(const Options& options) {
  if (options.precision != "auto") return options.precision == "bfloat16" ? at::kBFloat16 : at::kFloat;
  const auto alone = lt::connect({}, {.device = lt::DeviceChoice::cpu});
  return lt::fastest_precision(*alone.communicator, at::kCPU) == lt::Precision::bfloat16 ? at::kBFloat16 : at::kFloat;
}

std::vector<lt::data::DrawnDetection> find_objects(models::MaskRcnnImpl& model, const Photo& photo,
                                                   const lt::DetectorInfo& info, const Options& options,
                                                   at::ScalarType type) {
  const lt::Autocast autocast{at::kCPU, {.type = type}};
  const auto batch = lt::data::pad_detections({{.image = photo.seen, .target = {}}}, 32);
  const models::ImageSize seen{photo.seen.size(1), photo.seen.size(2)};
  const models::ImageSize size{photo.pixels.height, photo.pixels.width};
  const auto images = batch.images.contiguous(at::MemoryFormat::ChannelsLast);
  auto detections = model.detect({.images = images, .sizes = {seen}}).front();
  models::resize_boxes(detections, seen, size);
  return detected_objects(detections, size, options.score_threshold, info.classes);
}

std::string to_json(const std::string& image, const std::vector<lt::data::DrawnDetection>& found) {
  nlohmann::ordered_json object{{"image", image},
                                {"boxes", nlohmann::ordered_json::array()},
                                {"labels", nlohmann::ordered_json::array()},
                                {"scores", nlohmann::ordered_json::array()},
                                {"masks", nlohmann::ordered_json::array()}};
  for (const auto& each : found) {
    object["boxes"].push_back(each.box);
    object["labels"].push_back(each.name);
    object["scores"].push_back(*each.score);
    object["masks"].push_back(
        {{"size", {each.mask->height, each.mask->width}}, {"counts", lt::data::to_coco_string(*each.mask)}});
  }
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// A picture could replace an image in the same folder, or be taken for one when the command is repeated.
void require_other_folder(const std::vector<ImageFile>& images, const std::string& output) {
  std::error_code ignored;
  const auto folder = std::filesystem::weakly_canonical(output, ignored);
  for (const auto& image : images) {
    if (std::filesystem::weakly_canonical(image.path, ignored).parent_path() != folder) continue;
    throw lt::UsageError("The image '" + image.path + "' is in the folder '" + output +
                         "', in which it could be replaced. Choose another folder as --output.");
  }
}

// A name of its own for each image of the folder, so that images of the same name do not replace each other.
std::filesystem::path output_path(const Options& options, const std::string& image, std::set<std::string>& names) {
  const auto without_query = image.substr(0, image.find('?'));
  const auto stem = std::filesystem::path{without_query}.stem().string();
  auto name = stem + ".png";
  for (int number = 2; !names.insert(name).second; ++number) name = stem + "-" + std::to_string(number) + ".png";
  return std::filesystem::path{options.output} / name;
}

void draw(Photo& photo, const std::vector<lt::data::DrawnDetection>& found, const std::filesystem::path& path) {
  const bool is_small = std::min(photo.pixels.width, photo.pixels.height) < kSmallImage;
  lt::data::draw_detections(photo.pixels, found, {.enlarge = is_small ? kEnlarged : 1});
  lt::data::write_png(photo.pixels, path.string());
}

// Throws at the end if some images could not be read; the others have been segmented.
void segment(const Options& options) {
  auto info = lt::read_detector_info(options.weights);
  if (!options.model.empty()) info.model = options.model;
  auto model = load_model(options, info);
  const auto type = forward_type(options);
  if (options.precision == "auto" && type == at::kBFloat16) {
    std::cerr << "segment: computing in bfloat16, which is faster here; --precision float32 is more exact\n";
  }
  std::vector<ImageFile> images;
  for (const auto& location : options.images) find_images(location, images);
  if (!options.as_json) require_other_folder(images, options.output);
  std::error_code failure;
  if (!options.as_json) std::filesystem::create_directories(options.output, failure);
  if (failure) {
    throw lt::EnvironmentError("Cannot create the folder '" + options.output + "': " + failure.message() +
                               ". Choose another one as --output.");
  }

  const torch::NoGradGuard no_gradients;
  std::set<std::string> names;
  std::vector<std::string> rows;
  std::size_t done = 0;
  for (const auto& image : images) {
    std::optional<Photo> photo;
    try {
      photo = read_photo(image, info);
    } catch (const lt::data::StorageUnavailable&) {
      throw;
    } catch (const lt::EnvironmentError& error) {
      std::cerr << "segment: " << error.what() << '\n';
      continue;
    }
    const auto found = find_objects(*model, *photo, info, options, type);
    if (options.as_json) {
      rows.push_back(to_json(photo->name, found));
    } else {
      const auto path = output_path(options, photo->name, names);
      draw(*photo, found, path);
      std::cout << path.string() << ": " << found.size() << " objects in " << photo->name << '\n';
    }
    ++done;
  }
  if (options.as_json) std::cout << '[' << lt::join(rows, ",\n ") << "]\n";
  if (!std::cout.flush()) throw lt::EnvironmentError("Cannot write the results. Check the space on the disk.");
  if (done == images.size()) return;
  throw lt::EnvironmentError(
      lt::text(images.size() - done, " of ", images.size(), " images cannot be read. The others have been segmented."));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Finds objects in images with a trained Mask R-CNN."};
  Options options;
  app.add_option("--model", options.model, "resnet50, resnet101 or tiny (default: the one that the weights name)");
  app.add_option("--weights", options.weights, "A .pth or safetensors file")->required();
  app.add_option("--classes", options.classes, "Number of classes with the background, for weights without names")
      ->capture_default_str()
      ->check(CLI::Range(2, 1'000'000));
  app.add_option("--norm-epsilon", options.norm_epsilon,
                 "0 for weights that torchvision calls COCO_V1 (default: what the weights say, or 1e-5)")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--score-threshold", options.score_threshold, "Least score of an object")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--precision", options.precision, "auto (bfloat16 where it is faster), float32 or bfloat16")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "float32", "bfloat16"}));
  app.add_flag("--json", options.as_json, "Print a list of objects with image, boxes, labels, scores and masks");
  app.add_option("--output", options.output, "Folder for the pictures")->capture_default_str();
  app.add_option("IMAGES", options.images, "Files, folders and URIs")->required();
  return run_without_ranks(app, argc, argv, "segment", [&] { segment(options); });
}
