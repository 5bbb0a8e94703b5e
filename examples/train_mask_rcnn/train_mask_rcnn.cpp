// Trains Mask R-CNN on COCO, or on another data set in its format, on any number of ranks:
//
//   mpirun -n 8 train_mask_rcnn --data coco --backbone-weights resnet50.pth    26 epochs, as torchvision does
//   mpirun -n 8 train_mask_rcnn --data coco --backbone-weights resnet50.pth --recipe nvidia --iter 1000   a benchmark
//   train_mask_rcnn --data coco --weights maskrcnn_resnet50_fpn.pth --norm-epsilon 0 --labels-are-ids --test-only
//   make_shapes --output shapes && mpirun -n 2 train_mask_rcnn --data shapes --recipe shapes
//
// The data, in a local folder or at a URI, are the folders train2017 and val2017 of pictures (or of archives that
// libtrain-pack has written), and their annotations.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <libtrain/libtrain.hpp>
#include <libtrain/models/mask_rcnn/mask_rcnn.hpp>

#include "../ascending_numbers.hpp"
#include "coco_data.hpp"
#include "recipes.hpp"

namespace lt = libtrain;
namespace ltd = libtrain::data;
namespace models = libtrain::models;

namespace {

constexpr std::int64_t kPictures = 4;      // drawn in each evaluation
constexpr double kDrawnScore = 0.5;        // detections with less are not drawn
constexpr std::uint64_t kGroupChunk = 64;  // consecutive images of one aspect ratio
constexpr std::int64_t kNoLimit = 1000000000;
constexpr const char* kStages = "3";  // defaults of options that tiny does not have
constexpr const char* kEpsilon = "1e-5";

// ---- Data

ltd::Interval scale_jitter(lt::Context& context) {
  const ltd::Interval scale{context.number("min-scale", 0.001, 100), context.number("max-scale", 0.001, 100)};
  if (scale.low <= scale.high) return scale;
  throw lt::UsageError("Option --min-scale is " + context.option("min-scale") + ", but --max-scale is " +
                       context.option("max-scale") + ". Give both, the smaller one first.");
}

bool has_scale_jitter(lt::Context& context) {
  return scale_jitter(context) != ltd::Interval{1, 1};
}

ltd::CocoDetection open_split(lt::Context& context, const std::string& folder, ltd::CocoUse use) {
  const bool training = use == ltd::CocoUse::training;
  const auto size = [&](const char* name) { return static_cast<int>(context.integer(name, 32, 65535)); };
  const int min_size = size("min-size");
  const int max_size = size("max-size");
  ltd::ImagePipelineOptions images{.flip_probability = training ? context.number("hflip", 0, 1) : 0};
  if (training && has_scale_jitter(context)) {
    images.scale_jitter = {.width = max_size, .height = max_size, .scale = scale_jitter(context)};
  } else {
    images.shorter_side = {.min_size = min_size, .max_size = max_size};
  }
  return {context.storage("data"),
          folder,
          "annotations/instances_" + folder + ".json",
          {.use = use,
           .malformed = context.flag("skip-malformed") ? ltd::CocoMalformed::leave_out : ltd::CocoMalformed::refuse,
           .masks = training,
           .images = images,
           .copy_paste = training ? context.number("copy-paste", 0, 1) : 0,
           .labels_are_ids = context.flag("labels-are-ids")}};
}

ltd::DetectionBatch pad(const std::vector<ltd::DetectionSample>& samples) {
  return ltd::pad_detections(samples, 32);
}

// Each object needs a mask, and an evaluation an object.
void require_masks(const ltd::CocoDetection& set, const std::string& folder) {
  std::int64_t objects = 0;
  std::int64_t without_mask = 0;
  std::int64_t first = 0;
  for (const auto& each : set.annotations().objects.annotations) {
    if (each.crowd) continue;
    ++objects;
    if (each.kind == ltd::CocoShape::none && without_mask++ == 0) first = each.id;
  }
  if (without_mask > 0) {
    throw lt::EnvironmentError(lt::text(without_mask, " of ", objects, " objects of '", folder,
                                        "' have no segmentation, the first is annotation ", first,
                                        ". Mask R-CNN learns masks: add them, or leave these annotations out."));
  }
  if (objects == 0) {
    throw lt::EnvironmentError("The annotations of '" + folder +
                               "' have no object that is not a crowd. Check the file.");
  }
}

bool has_initial_weights(const lt::Context& context) {
  return !context.option("weights").empty() || !context.option("backbone-weights").empty();
}

// The metadata of --weights, which a .pth file does not have, say how they were trained.
void follow_weights(const lt::Context& context, lt::DetectorInfo& info) {
  const auto path = context.option("weights");
  const auto saved = lt::read_detector_info(path);
  const auto require = [&](bool fits, const auto&... words) {
    if (!fits) throw lt::UsageError(lt::text("'", path, "' was trained ", words...));
  };
  if (!saved.model.empty()) {
    info.frozen_batch_norm = saved.frozen_batch_norm;
    require(saved.model == info.model, "with --model ", saved.model, ", not ", info.model, ". Give its model.");
    require(saved.norm_epsilon == info.norm_epsilon, "with --norm-epsilon ", saved.norm_epsilon, ", not ",
            info.norm_epsilon, ". Give its value.");
    const bool same_sizes = saved.min_size == info.min_size && saved.max_size == info.max_size;
    if (context.flag("test-only") && !same_sizes && context.rank() == 0) {
      lt::log_warning(lt::text("'", path, "' was trained with --min-size ", saved.min_size, " and --max-size ",
                               saved.max_size, ", and is evaluated with ", info.min_size, " and ", info.max_size, "."));
    }
  }
  const bool same_ids = saved.category_ids.empty() || saved.category_ids == info.category_ids;
  const bool same_names = saved.classes.empty() || saved.classes == info.classes;
  require(context.flag("new-classes") || (same_ids && same_names),
          "on other categories than those of --data, or on them in another order. Add --new-classes, or give "
          "annotations with its categories.");
}

lt::DetectorInfo detector_info(const lt::Context& context, const ltd::CocoDetection& set) {
  lt::DetectorInfo info{.model = context.choice("model", models::mask_rcnn_names()),
                        .min_size = static_cast<int>(context.integer("min-size")),
                        .max_size = static_cast<int>(context.integer("max-size"))};
  // Constant batch norms would leave random weights without any normalisation.
  info.frozen_batch_norm = info.model != "tiny" && has_initial_weights(context);
  info.norm_epsilon = context.number("norm-epsilon", 0, 1);
  for (const auto& category : set.classes()) {
    info.classes.push_back(category.name);
    info.category_ids.push_back(category.id);
  }
  if (!context.option("weights").empty()) follow_weights(context, info);
  return info;
}

// ---- Settings

lt::optim::Schedule schedule(const lt::Context& context, const lt::TrainingLength& length) {
  const double factor = context.number("gamma", 0, 1);
  const auto steps = ascending_numbers(context, "decay-iters");
  auto decay = lt::optim::multi_step_decay({.milestones = steps, .factor = factor});
  if (steps.empty()) {
    decay = lt::optim::by_epoch(
        lt::optim::multi_step_decay({.milestones = ascending_numbers(context, "decay-epochs"), .factor = factor}),
        length.steps_per_epoch);
  }
  return lt::optim::warm_up(
      {.steps = context.integer("warmup-iters", 0, kNoLimit), .first_factor = context.number("warmup-factor", 0, 1)},
      decay);
}

double learning_rate(const lt::Context& context, std::int64_t images_per_step) {
  return context.number("learning-rate", 0) * static_cast<double>(images_per_step) /
         context.number("reference-batch", 1);
}

lt::Precision precision(lt::Context& context) {
  const auto word = context.choice("precision", {"auto", "float32", "bfloat16"});
  if (word == "auto") return lt::fastest_precision(context.communicator(), context.device());
  return word == "bfloat16" ? lt::Precision::bfloat16 : lt::Precision::float32;
}

// Processors compute 16-bit convolutions much faster in this layout.
bool is_channels_last(const lt::Context& context, lt::Precision precision) {
  const auto layout = context.choice("channels-last", {"auto", "true", "false"});
  return layout == "auto" ? precision != lt::Precision::float32 : layout == "true";
}

lt::TrainerOptions trainer_options(lt::Context& context) {
  const auto chosen = precision(context);
  const auto steps = context.integer("iter", 0, kNoLimit);
  const auto epochs = context.integer("epochs", 1, kNoLimit);
  lt::TrainerOptions options{
      .epochs = steps > 0 ? 0 : epochs,
      .max_steps = steps,
      .precision = chosen,
      .schedule = [&context](const lt::TrainingLength& length) { return schedule(context, length); },
      .channels_last = is_channels_last(context, chosen),
      .evaluate_every_epochs = context.flag("skip-test") ? 0 : context.integer("evaluate-epochs", 0, kNoLimit),
      .log_every_steps = context.integer("log-iters", 1, kNoLimit)};
  options.checkpoints.every_steps = context.integer("checkpoint-iters", 0, kNoLimit);
  if (context.flag("skip-test")) return options;
  options.checkpoints.metric = "bbox_ap";
  options.checkpoints.best = lt::CheckpointRetention::Best::highest;
  return options;
}

// Weights to begin with: of all of Mask R-CNN, or of the ResNet in it.
void load_initial_weights(const lt::Context& context, models::MaskRcnnImpl& model) {
  if (!context.option("weights").empty()) {
    lt::LoadWeightsOptions options;
    for (const auto& [from, to] : models::renamed_mask_rcnn_tensors()) options.rename.push_back({from, to});
    // The predictors, also if the file's are of as many classes.
    if (context.flag("new-classes")) {
      options.may_be_missing = {"roi_heads.box_predictor.", "roi_heads.mask_predictor.mask_fcn_logits."};
      for (const auto& name : options.may_be_missing) options.rename.push_back({name, "left out " + name});
      options.may_be_unexpected = {"left out "};
    }
    lt::load_weights(model, context.option("weights"), options);
  }
  if (!context.option("backbone-weights").empty()) {
    const auto backbone = model.named_modules()["backbone.body"];
    const auto loaded = lt::load_weights(*backbone, context.option("backbone-weights"),
                                         {.may_be_unexpected = {"fc.", "bn1.", "layer"}});
    for (const auto& name : loaded.unexpected) {
      // A frozen batch norm counts no batches.
      if (name.starts_with("fc.") || name.ends_with(".num_batches_tracked")) continue;
      throw lt::UsageError("'" + context.option("backbone-weights") + "' has the tensor '" + name +
                           "', which the backbone of --model " + context.option("model") +
                           " does not have. Give the weights of that ResNet.");
    }
  }
}

// ---- Evaluation and pictures

ltd::Image to_picture(const torch::Tensor& normalised) {
  const auto mean = torch::tensor(c10::ArrayRef<float>(ltd::kImageNetNormalization.mean)).view({3, 1, 1});
  const auto deviation =
      torch::tensor(c10::ArrayRef<float>(ltd::kImageNetNormalization.standard_deviation)).view({3, 1, 1});
  const auto pixels = ((normalised.cpu() * deviation + mean) * 255)
                          .round()
                          .clamp(0, 255)
                          .to(torch::kByte)
                          .permute({1, 2, 0})
                          .contiguous();
  ltd::Image image{.width = static_cast<int>(pixels.size(1)), .height = static_cast<int>(pixels.size(0))};
  image.pixels.assign(pixels.const_data_ptr<std::uint8_t>(), pixels.const_data_ptr<std::uint8_t>() + pixels.numel());
  return image;
}

void show(lt::Trackers& trackers, std::int64_t step, std::int64_t number, const torch::Tensor& normalised,
          const models::ImageSize& size, const models::Detections& detections, const lt::DetectorInfo& info) {
  auto image = to_picture(normalised.slice(1, 0, size.height).slice(2, 0, size.width));
  ltd::draw_detections(image, detected_objects(detections, size, kDrawnScore, info.classes),
                       {.enlarge = size.height < 300 ? 3 : 1});
  const auto png = ltd::encode_png(image);
  trackers.log_image(
      lt::text("predictions/", number), step,
      {.bytes = {reinterpret_cast<const char*>(png.data()), png.size()}, .height = image.height, .width = image.width});
}

// COCO's numbers over the images of all ranks, each once; `tables` has all of them as text. std::nullopt if the run was
// asked to stop.
std::optional<std::map<std::string, double>> evaluate(lt::Context& context, lt::Trainer& trainer,
                                                      models::MaskRcnnImpl& model,
                                                      ltd::DataLoaderOf<ltd::DetectionBatch>& loader,
                                                      const ltd::CocoDetection& set, const lt::DetectorInfo& info,
                                                      const std::function<bool()>& must_stop, std::string& tables) {
  std::vector<ltd::CocoResult> results;
  std::int64_t shown = 0;
  for (const auto& batch : loader.epoch(0)) {
    if (must_stop()) return std::nullopt;
    if (batch.targets.empty()) continue;
    const auto images = image_batch(batch);
    const auto detections = model.detect(images);
    for (std::size_t k = 0; k < detections.size(); ++k) {
      const auto found = on_cpu(detections[k]);
      if (context.rank() == 0 && shown < kPictures) {
        show(trainer.trackers(), trainer.state().step, shown++, batch.images[static_cast<std::int64_t>(k)],
             images.sizes[k], found, info);
      }
      const auto& annotations = set.annotations();
      add_results(found, images.sizes[k], annotations.images[annotations.find_image(batch.targets[k].image_id).value()],
                  info.category_ids, results);
    }
  }
  const auto all = context.communicator().all_gather_bytes(ltd::pack_coco_results(results));
  std::map<std::string, double> values;
  if (context.rank() != 0) return values;
  results = ltd::unpack_coco_results(lt::join(all, ""));
  tables.clear();
  const auto add = [&](const std::string& name, ltd::CocoIouType type) {
    const auto& truth = set.annotations();
    const auto evaluation = ltd::evaluate_coco(truth, ltd::link_coco_results(results, truth, type),
                                               {.type = type, .threads = at::get_num_threads()});
    tables += name + "\n" + ltd::coco_summary(evaluation.stats);
    const std::vector<std::string> keys = {"ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large"};
    for (std::size_t k = 0; k < keys.size(); ++k) {
      // -1: there is no object of such a size.
      if (evaluation.stats[k] >= 0) values[name + "_" + keys[k]] = evaluation.stats[k];
    }
  };
  add("bbox", ltd::CocoIouType::boxes);
  if (model.options().masks) add("segm", ltd::CocoIouType::masks);
  ltd::write_coco_results((context.output_directory() / "detections.json").string(), results,
                          model.options().masks ? ltd::CocoResultKeys::both : ltd::CocoResultKeys::bbox);
  return values;
}

// ---- Training

// Images per second as NVIDIA's benchmark computes them: with everything, and from the first record to the last.
class Throughput {
 public:
  Throughput(std::int64_t images_per_step, std::int64_t steps_per_record)
      : images_per_step_(images_per_step), steps_per_record_(steps_per_record) {}

  void after_step() {
    if (++steps_ % steps_per_record_ != 0) return;
    last_ = Clock::now();
    last_steps_ = steps_;
    if (first_steps_ == 0) {
      first_ = last_;
      first_steps_ = steps_;
    }
  }

  void summarize(lt::Context& context) const {
    const auto images = [this](std::int64_t steps, Clock::time_point from, Clock::time_point to) {
      return static_cast<double>(steps * images_per_step_) / std::chrono::duration<double>(to - from).count();
    };
    if (steps_ > 0) context.summary().set("train_perf_fps", images(steps_, begin_, Clock::now()));
    if (last_steps_ > first_steps_) context.summary().set("dfps", images(last_steps_ - first_steps_, first_, last_));
  }

 private:
  using Clock = std::chrono::steady_clock;
  const std::int64_t images_per_step_;
  const std::int64_t steps_per_record_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point first_, last_;
  std::int64_t steps_ = 0;
  std::int64_t first_steps_ = 0;
  std::int64_t last_steps_ = 0;
};

// The network with its initial weights, on the device.
models::MaskRcnn make_model(lt::Context& context, const lt::DetectorInfo& info) {
  models::MaskRcnnOptions options;
  options.classes = 1 + std::ssize(info.classes);
  options.frozen_batch_norm = info.frozen_batch_norm;
  // A rank has few images: their statistics alone are so noisy that the network learns less on more ranks.
  if (!info.frozen_batch_norm) options.norm = lt::sync_batch_norm_factory(context.communicator());
  options.norm_epsilon = info.norm_epsilon;
  if (info.model == "tiny" &&
      (context.option("trainable-stages") != kStages || context.option("norm-epsilon") != kEpsilon)) {
    throw lt::UsageError(
        "Options --trainable-stages and --norm-epsilon are of resnet50 and resnet101: all layers of tiny are trained, "
        "and its batch norms are not constants.");
  }
  const auto trainable_stages = context.integer("trainable-stages", 0, 5);
  options.trainable_stages = has_initial_weights(context) ? trainable_stages : 5;
  if (!has_initial_weights(context) && info.model != "tiny") {
    context.progress().print("No --weights and no --backbone-weights: batch norms and all layers are trained.");
  }
  auto model = models::make_mask_rcnn(info.model, options);
  load_initial_weights(context, *model);
  model->to(context.device());
  return model;
}

std::vector<torch::Tensor> trainable_parameters(const torch::nn::Module& model) {
  std::vector<torch::Tensor> trainable;
  for (const auto& parameter : model.parameters()) {
    if (parameter.requires_grad()) trainable.push_back(parameter);
  }
  return trainable;
}

ltd::CocoDetection open_split_with_masks(lt::Context& context, const char* option, ltd::CocoUse use) {
  auto set = open_split(context, context.option(option), use);
  require_masks(set, context.option(option));
  return set;
}

void train(lt::Context& context) {
  const bool test_only = context.flag("test-only");
  if (test_only && (context.option("weights").empty() || !context.option("backbone-weights").empty() ||
                    context.flag("new-classes") || context.flag("skip-test"))) {
    throw lt::UsageError(
        "--test-only evaluates --weights on the images of --val. Give them, without --backbone-weights, --new-classes "
        "and --skip-test.");
  }
  std::optional<ltd::CocoDetection> set, held_out;
  if (!test_only) set.emplace(open_split_with_masks(context, "train", ltd::CocoUse::training));
  if (!context.flag("skip-test")) held_out.emplace(open_split_with_masks(context, "val", ltd::CocoUse::evaluation));
  const auto info = detector_info(context, set ? *set : *held_out);
  const auto metadata = lt::detector_metadata(info);
  if (set && held_out) {
    const auto other = detector_info(context, *held_out);
    if (other.category_ids != info.category_ids || other.classes != info.classes) {
      throw lt::UsageError("The annotations of --train and --val have different categories. Give both the same list.");
    }
  }

  const auto images_per_rank = context.integer("images-per-rank", 1, 100000);
  const auto images_per_step = images_per_rank * context.world_size();
  auto model = make_model(context, info);
  lt::optim::FusedSgd sgd{trainable_parameters(*model),
                          torch::optim::SGDOptions(learning_rate(context, images_per_step))
                              .momentum(context.number("momentum", 0, 1))
                              .weight_decay(context.number("weight-decay", 0))};

  const auto workers = static_cast<int>(context.integer("workers", 0, 1024));
  std::optional<ltd::DataLoaderOf<ltd::DetectionBatch>> loader, evaluated;
  if (set) {
    // Of images that are cropped, the shape does not follow from that of the file.
    const auto groups = has_scale_jitter(context) ? std::vector<std::uint8_t>() : set->aspect_ratio_groups();
    loader.emplace(*set, pad,
                   ltd::LoaderOptions{.batch_size = static_cast<std::uint64_t>(images_per_rank),
                                      .workers = workers,
                                      .remainder = ltd::Remainder::drop,
                                      .groups = groups,
                                      .group_chunk = kGroupChunk},
                   context.shard());
  }
  const auto options = trainer_options(context);
  const auto* const precision = options.precision == lt::Precision::float32 ? "float32" : "bfloat16";
  context.progress().print(lt::text(test_only ? "Evaluating in " : "Training in ", precision,
                                    options.channels_last ? ", channels_last." : "."));
  context.summary().set("precision", precision).set("channels_last", options.channels_last);
  lt::Trainer trainer{context, model, sgd, options};
  std::string tables;
  if (held_out) {
    evaluated.emplace(
        *held_out, pad,
        ltd::LoaderOptions{
            .batch_size = 1, .workers = workers, .order = ltd::Order::sequential, .remainder = ltd::Remainder::exact},
        context.shard());
    trainer.evaluate_with([&](const std::function<bool()>& must_stop) {
      return evaluate(context, trainer, *model, *evaluated, *held_out, info, must_stop, tables);
    });
  }
  if (test_only) {
    trainer.evaluate();
    context.progress().print(tables);
    return;
  }
  Throughput throughput(images_per_step, context.integer("log-iters"));
  trainer.after_step([&](const lt::TrainingState&) { throughput.after_step(); });

  trainer.fit(*loader, [&](const ltd::DetectionBatch& batch) -> lt::StepResult {
    std::vector<models::ObjectTargets> targets;
    for (const auto& target : batch.targets)
      targets.push_back(object_targets(target, context.seed(), trainer.state().step));
    const auto losses = model->losses(image_batch(batch), targets);
    return {losses.sum(),
            {{"loss_objectness", losses.objectness},
             {"loss_rpn_box_reg", losses.proposal_boxes},
             {"loss_classifier", losses.classifier},
             {"loss_box_reg", losses.boxes},
             {"loss_mask", losses.masks}}};
  });
  throughput.summarize(context);
  if (!tables.empty()) context.progress().print(tables);
  context.progress().print(ltd::describe(loader->statistics()));
  if (context.rank() != 0) return;
  lt::save_weights(*model, context.output_directory() / "model.safetensors", metadata);
  const auto best = trainer.best_checkpoint();
  if (best.empty()) return;
  lt::load_weights(*model, (best / "model.safetensors").string());
  lt::save_weights(*model, context.output_directory() / "best_model.safetensors", metadata);
}

std::vector<lt::Option> options() {
  return {
      {.name = "data", .help = "Folder or URI with pictures and annotations", .may_change = true},
      {"train", "Folder of the training pictures; annotations are annotations/instances_NAME.json", "train2017"},
      {"val", "The same for the evaluation", "val2017"},
      {.name = "skip-malformed", .help = "Leave out and count malformed annotations", .flag = true},
      {.name = "labels-are-ids",
       .help = "Labels are the ids of categories, with gaps, as in torchvision's weights of COCO",
       .flag = true},
      {"model", "resnet50, resnet101 or tiny", "resnet50"},
      {.name = "weights", .help = "Weights of Mask R-CNN to begin with", .value = ""},
      {.name = "test-only", .help = "Evaluate --weights, and train nothing", .may_change = true, .flag = true},
      {.name = "new-classes", .help = "Leave the predictors of --weights out", .flag = true},
      {.name = "backbone-weights", .help = "Weights of the ResNet to begin with", .value = ""},
      {"norm-epsilon", "Of constant batch norms: 0 for weights that torchvision calls COCO_V1", kEpsilon},
      {"trainable-stages", "How many stages of a ResNet with initial weights are trained, from the last on: 0 to 5",
       kStages},
      {"images-per-rank", "Images per rank and step", "2"},
      // What it comes to is compared, and may not change.
      {.name = "precision",
       .help = "auto (bfloat16 where it is faster), float32 or bfloat16",
       .value = "auto",
       .may_change = true},
      {"channels-last", "Layout of images and weights: auto (with 16 bits), true or false", "auto"},
      {.name = "workers", .help = "Threads that read and decode, per rank", .value = "2", .may_change = true},
      {"min-size", "Pixels of the shorter side", "800"},
      {"max-size", "Limit of the longer side in pixels", "1333"},
      {"hflip", "Probability of mirroring", "0.5"},
      {"min-scale",
       "Random scales of the size at which an image fits into a square of --max-size, to which it is cropped: 0.1",
       "1"},
      {"max-scale", "and 2 for large-scale jittering; 1 and 1: none, but --min-size and --max-size", "1"},
      {"copy-paste", "Probability that objects of another image are pasted onto an image", "0"},
      {.name = "skip-test", .help = "Without evaluations", .flag = true},
      {"evaluate-epochs", "Epochs between evaluations; 0: only at the end", "1"},
      {"log-iters", "Steps between records", "20"},
      {"checkpoint-iters", "Steps between checkpoints; 0: only after epochs", "2500"},
      // Settings of the recipes
      {"epochs", "Passes over the training images", "26"},
      {"iter", "Steps; 0: as many as the epochs have", "0"},
      {"learning-rate", "Rate for --reference-batch images per step; it grows with the images per step", "0.02"},
      {"reference-batch", "Images per step of all ranks for which the rate is", "16"},
      {"warmup-iters", "Steps in which the rate rises", "1000"},
      {"warmup-factor", "Share of the rate in the first step", "0.001"},
      {"decay-epochs", "Epochs after which the rate falls", "16,22"},
      {"decay-iters", "Steps after which the rate falls, instead", ""},
      {"gamma", "By which factor it falls", "0.1"},
      {"momentum", "Momentum", "0.9"},
      {"weight-decay", "Weight decay", "1e-4"},
  };
}

}  // namespace

int main(int argc, char** argv) {
  return lt::run(argc, argv,
                 {.description = "Trains Mask R-CNN on COCO or on data in its format.",
                  .options = options(),
                  .recipes = recipes()},
                 train);
}
