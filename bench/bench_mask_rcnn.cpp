// How fast is Mask R-CNN, beside torchvision's?
//
//   python3 bench/peers/mask_rcnn.py --make FOLDER
//   bench_mask_rcnn --data FOLDER --workload step
//
// On a GPU a step and an image in bf16 are forward passes under autocast. There a time ends when the device has ended.
//
// bench/peers/mask_rcnn.py does the same in Python; bench/compare_mask_rcnn.py runs both in turns. Both load the same
// weights and images, so that they see the same proposals.

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <torch/cuda.h>
#include <torch/torch.h>
#include <CLI/CLI.hpp>

#include <bench/run_without_ranks.hpp>
#include <libtrain/base/build_info.hpp>
#include <libtrain/base/clock.hpp>
#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/checkpoint/weights.hpp>
#include <libtrain/comm/detail/device/visible_gpus.hpp>
#include <libtrain/comm/detail/nccl/cuda_library.hpp>
#include <libtrain/models/mask_rcnn/image_batch.hpp>
#include <libtrain/models/mask_rcnn/mask_rcnn.hpp>
#include <libtrain/models/mask_rcnn/operators.hpp>
#include <libtrain/observe/detail/percentile.hpp>
#include <libtrain/observe/metrics.hpp>
#include <libtrain/observe/record.hpp>
#include <libtrain/optim/fused_sgd.hpp>
#include <libtrain/train/autocast.hpp>
#include <libtrain/train/channels_last.hpp>

namespace lt = libtrain;
namespace models = libtrain::models;

namespace {

struct Options {
  std::string folder;
  std::vector<std::string> workloads = {"step"};
  std::string device = "cpu";
  std::string precision = "float32";
  bool channels_last = false;
  std::int64_t iterations = 15;
  std::string json;
};

using Tensors = std::map<std::string, at::Tensor>;

models::MaskRcnn load_model(const Options& options) {
  models::MaskRcnn model = models::mask_rcnn_resnet50_fpn();
  lt::load_weights(*model, options.folder + "/weights.pth");
  model->to(c10::Device(options.device));
  if (options.channels_last) lt::to_channels_last(*model);
  return model;
}

lt::AutocastOptions forward_type(const Options& options) {
  return {.type = options.precision == "bf16" ? at::kBFloat16 : at::kFloat};
}

at::Tensor in_layout(const at::Tensor& images, const Options& options) {
  return options.channels_last ? images.contiguous(at::MemoryFormat::ChannelsLast) : images;
}

// Times `iterations` calls after two that do not count.
std::vector<double> time(const Options& options, const std::function<void()>& work) {
  std::vector<double> seconds;
  for (std::int64_t iteration = -2; iteration < options.iterations; ++iteration) {
    const lt::Stopwatch stopwatch;
    work();
    if (options.device == "cuda") torch::cuda::synchronize();
    if (iteration >= 0) seconds.push_back(stopwatch.seconds());
  }
  return seconds;
}

std::vector<double> time_steps(const Options& options, const Tensors& inputs) {
  auto model = load_model(options);
  std::vector<at::Tensor> trainable;
  for (const auto& parameter : model->parameters()) {
    if (parameter.requires_grad()) trainable.push_back(parameter);
  }
  lt::optim::FusedSgd sgd{trainable, torch::optim::SGDOptions(1e-6).momentum(0.9)};
  const auto images = in_layout(inputs.at("train_images"), options);
  models::ImageBatch batch{.images = images, .sizes = {}};
  std::vector<models::ObjectTargets> targets;
  for (std::int64_t k = 0; k < images.size(0); ++k) {
    batch.sizes.push_back({images.size(2), images.size(3)});
    targets.push_back({inputs.at("boxes")[k], inputs.at("labels")[k], inputs.at("masks")[k], 0});
  }
  std::int64_t step = 0;
  return time(options, [&] {
    for (std::size_t k = 0; k < targets.size(); ++k) {
      targets[k].seed = models::sampling_seed(1, step, static_cast<std::int64_t>(k));
    }
    ++step;
    sgd.zero_grad();
    at::Tensor loss;
    {
      const lt::Autocast autocast{c10::Device(options.device), forward_type(options)};
      loss = model->losses(batch, targets).sum();
    }
    loss.backward();
    sgd.step();
  });
}

// Of an image in memory to masks in its size.
std::vector<double> time_inference(const Options& options, const Tensors& inputs) {
  auto model = load_model(options);
  model->eval();
  const at::NoGradGuard no_grad;
  const auto image = inputs.at("photo");
  return time(options, [&] {
    const lt::Autocast autocast{c10::Device(options.device), forward_type(options)};
    auto batch = models::make_image_batch({image});
    batch.images = in_layout(batch.images, options);
    auto detections = model->detect(batch).front();
    const models::ImageSize size{image.size(1), image.size(2)};
    models::resize_boxes(detections, batch.sizes.front(), size);
    models::paste_masks(detections.masks, detections.boxes, size);
  });
}

std::vector<double> time_nms(const Options& options, const std::string& workload, const Tensors& inputs) {
  const auto& boxes = inputs.at(workload + "_boxes");
  const auto& scores = inputs.at(workload + "_scores");
  const auto groups = torch::zeros_like(scores, torch::kLong);
  return time(options, [&] { models::nms(boxes, scores, groups, 0.7); });
}

std::vector<double> time_roi_align(const Options& options, const Tensors& inputs) {
  auto map = in_layout(inputs.at("map"), options).clone().requires_grad_();
  const auto& boxes = inputs.at("map_boxes");
  const auto images = torch::zeros({boxes.size(0)}, boxes.options().dtype(torch::kLong));
  const auto gradient = torch::ones({boxes.size(0), map.size(1), 7, 7}, map.options().requires_grad(false));
  return time(options, [&] {
    map.mutable_grad().reset();
    models::roi_align({map}, boxes, images, {.strides = {4}}).backward(gradient);
  });
}

std::vector<double> time_workload(const Options& options, const std::string& workload, const Tensors& inputs) {
  torch::manual_seed(1);
  if (workload == "step") return time_steps(options, inputs);
  if (workload == "inference") return time_inference(options, inputs);
  if (workload == "roi_align") return time_roi_align(options, inputs);
  return time_nms(options, workload, inputs);
}

void run_bench(const Options& options) {
  if (options.device == "cuda") {  // before the first call of LibTorch
    const auto& visible = lt::detail::visible_gpus();
    const auto problem = visible.gpus.empty() ? visible.problem : lt::detail::load_cuda_library();
    if (!problem.empty()) throw lt::EnvironmentError("--device cuda, but " + problem + ".");
    at::globalContext().setBenchmarkCuDNN(true);
  }
  auto records = options.json.empty() ? lt::MetricsWriter::disabled() : lt::MetricsWriter::to_file(options.json);
  auto inputs = lt::read_tensors(options.folder + "/inputs.safetensors");
  for (auto& item : inputs) item.second = item.second.to(c10::Device(options.device));
  for (const auto& workload : options.workloads) {
    const auto seconds = time_workload(options, workload, inputs);
    lt::Record record{"mask_rcnn"};
    record.set("implementation", "libtrain")
        .set("workload", workload)
        .set("device", options.device)
        .set("precision", options.precision)
        .set("channels_last", options.channels_last)
        .set("threads", at::get_num_threads())
        .set("iterations", seconds.size())
        .set("median_s", lt::detail::percentile(seconds, 0.5))
        .set("min_s", lt::detail::percentile(seconds, 0))
        .set("peak_rss_bytes", lt::detail::peak_rss_bytes())
        .set("git_revision", lt::build_info().git_revision);
    records.write(record);
    std::printf("%s: minimum %.4f s, median %.4f s of %zu\n", workload.c_str(), lt::detail::percentile(seconds, 0),
                lt::detail::percentile(seconds, 0.5), seconds.size());
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Times Mask R-CNN and its operators."};
  Options options;
  app.add_option("--data", options.folder, "Folder with what bench/peers/mask_rcnn.py --make writes")->required();
  app.add_option("--workload", options.workloads, "One or several")
      ->capture_default_str()
      ->check(CLI::IsMember({"step", "inference", "nms_2000", "nms_20000", "roi_align"}));
  app.add_option("--device", options.device)->capture_default_str()->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--precision", options.precision, "Of the forward pass of step and inference")
      ->capture_default_str()
      ->check(CLI::IsMember({"float32", "bf16"}));
  app.add_flag("--channels-last", options.channels_last, "libtrain's layout instead of torchvision's");
  app.add_option("--iterations", options.iterations, "Timed runs")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--json", options.json, "File to append the record to");
  return lt::bench::run_without_ranks(app, argc, argv, [&] { run_bench(options); });
}
