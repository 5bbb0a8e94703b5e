// Classifies images with a trained network, in one process on the CPU:
//
//   classify --model resnet50 --weights resnet50.pth cat.jpg photos az://container/more
//   classify --json --weights outputs/model.safetensors photos
//
// An image is given as a file, or as a folder, for all .jpg, .jpeg and .png files below it; a URI is one of a file if
// it ends like that. Weights that transfer_learning has written name their model and classes. Those of torchvision do
// not: then labels are numbers.

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <libtrain/libtrain.hpp>
#include <libtrain/models/make_model.hpp>

#include "../image_files.hpp"
#include "../without_ranks.hpp"

namespace lt = libtrain;

namespace {

constexpr std::size_t kBatchSize = 32;

struct Options {
  std::string model = {};
  std::string weights = {};
  std::int64_t classes = 1000;
  bool as_json = false;
  std::vector<std::string> images = {};
};

struct Batch {
  std::vector<std::string> names = {};
  std::vector<std::string> problems = {};  // why an image cannot be read; empty if it can
  torch::Tensor images = {};               // zeros if it cannot
};

Batch read_batch(std::span<const ImageFile> images, const lt::data::ImagePipelineOptions& options) {
  const auto count = std::ssize(images);
  Batch batch{.names = std::vector<std::string>(images.size()),
              .problems = std::vector<std::string>(images.size()),
              .images = torch::zeros({count, options.channels, options.height, options.width})};
  auto* const pixels = static_cast<std::byte*>(batch.images.mutable_data_ptr());
  at::parallel_for(0, count, 1, [&](std::int64_t begin, std::int64_t end) {
    lt::data::ImagePipeline pipeline{options};
    for (auto index = static_cast<std::size_t>(begin); index < static_cast<std::size_t>(end); ++index) {
      try {
        const auto file = images[index].open();
        batch.names[index] = file->name();
        const auto bytes = lt::data::read_all(*file, kLargestImageFile);
        lt::data::SampleRandom random(0, 0, index);  // nothing is drawn from it
        pipeline.run(std::as_bytes(std::span{bytes}), file->name(), random,
                     {pixels + index * pipeline.bytes(), pipeline.bytes()});
      } catch (const lt::data::StorageUnavailable&) {
        throw;
      } catch (const lt::EnvironmentError& error) {
        batch.problems[index] = error.what();
      }
    }
  });
  return batch;
}

std::shared_ptr<lt::models::ImageClassifier> load_model(const Options& options, const lt::ClassifierInfo& info) {
  if (info.model.empty()) {
    throw lt::UsageError("'" + options.weights + "' does not name its model. Give it as --model, such as resnet50.");
  }
  const auto classes = info.classes.empty() ? options.classes : std::ssize(info.classes);
  auto model = lt::models::make_model(info.model, {.classes = classes, .input_channels = std::ssize(info.mean)});
  lt::load_weights(*model, options.weights);
  model->eval();
  return model;
}

void print_object(const std::string& image, const std::string& label, float probability, const torch::Tensor& logits) {
  const std::span values{logits.const_data_ptr<float>(), static_cast<std::size_t>(logits.numel())};
  const nlohmann::ordered_json object{
      {"image", image}, {"label", label}, {"probability", probability}, {"logits", values}};
  std::cout << object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Throws at the end if some images could not be read; the others have been classified.
void classify(const Options& options) {
  auto info = lt::read_classifier_info(options.weights);
  if (!options.model.empty()) info.model = options.model;
  const auto model = load_model(options, info);
  auto pipeline = lt::data::evaluation_images(info.image_side, info.short_side);
  pipeline.channels = static_cast<int>(info.mean.size());
  std::ranges::copy(info.mean, pipeline.normalization.mean.begin());
  std::ranges::copy(info.standard_deviation, pipeline.normalization.standard_deviation.begin());
  std::vector<ImageFile> images;
  for (const auto& location : options.images) find_images(location, images);
  std::size_t width = 5;
  for (const auto& name : info.classes) width = std::max(width, name.size());

  const torch::NoGradGuard no_gradients;
  std::size_t classified = 0;
  for (std::span<const ImageFile> left{images}; !left.empty();) {
    const auto batch = read_batch(left.first(std::min(kBatchSize, left.size())), pipeline);
    left = left.subspan(batch.names.size());
    const auto logits = model->forward(batch.images).contiguous();
    const auto [probabilities, labels] = logits.softmax(1).max(1);
    for (std::size_t index = 0; index < batch.names.size(); ++index) {
      if (!batch.problems[index].empty()) {
        std::cerr << "classify: " << batch.problems[index] << '\n';
        continue;
      }
      const auto row = static_cast<std::int64_t>(index);
      const auto label = static_cast<std::size_t>(labels[row].item<std::int64_t>());
      const auto name = info.classes.empty() ? std::to_string(label) : info.classes[label];
      const auto probability = probabilities[row].item<float>();
      if (options.as_json) {
        std::cout << (classified == 0 ? "[" : ",\n ");
        print_object(batch.names[index], name, probability, logits[row]);
      } else {
        std::cout << std::left << std::setw(static_cast<int>(width)) << name << std::fixed << std::setprecision(4)
                  << "  " << probability << "  " << batch.names[index] << '\n';
      }
      ++classified;
    }
  }
  if (options.as_json) std::cout << (classified == 0 ? "[]\n" : "]\n");
  if (!std::cout.flush()) throw lt::EnvironmentError("Cannot write the results. Check the space on the disk.");
  if (classified == images.size()) return;
  throw lt::EnvironmentError(lt::text(images.size() - classified, " of ", images.size(),
                                      " images cannot be read. The others have been classified."));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Classifies images with a trained network."};
  Options options;
  app.add_option("--model", options.model, "Name of the model (default: the one that the weights name)");
  app.add_option("--weights", options.weights, "A .pth or safetensors file")->required();
  app.add_option("--classes", options.classes, "Number of classes, for weights that do not name them")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  app.add_flag("--json", options.as_json, "Print a list of objects with image, label, probability and logits");
  app.add_option("IMAGES", options.images, "Files, folders and URIs")->required();
  return run_without_ranks(app, argc, argv, "classify", [&] { classify(options); });
}
