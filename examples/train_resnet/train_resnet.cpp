// Trains ResNet-50 and its relatives by published recipes, on any number of ranks:
//
//   mpirun -n 8 train_resnet --data imagenet                           90 epochs, as in Goyal et al.
//   mpirun -n 8 train_resnet --data imagenet --recipe torchvision-v2   another recipe; --help lists them
//   mpirun -n 8 train_resnet                                           images per second, with synthetic images
//   train_resnet --data imagenet --weights resnet50.pth --test-only    the accuracy of weights
//
// The data, in a local folder or at a URI, are the folders train and val: image files in folders named after their
// classes, or shards (tar, TFRecord, Parquet).

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <libtrain/libtrain.hpp>
#include <libtrain/models/make_model.hpp>

#include "../ascending_numbers.hpp"
#include "recipes.hpp"
#include "synthetic_images.hpp"
#include "throughput.hpp"

namespace lt = libtrain;
namespace ltd = libtrain::data;

namespace {

constexpr std::int64_t kImageNetImages = 1281167;
constexpr std::int64_t kImageNetClasses = 1000;

// ---- What the options say

struct Settings {
  explicit Settings(lt::Context& context);

  at::MemoryFormat format() const {
    return channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  }

  std::int64_t epochs, max_steps, accumulate;
  std::uint64_t batch_size;  // of a rank
  double global_batch;       // images of all ranks in a step
  lt::Precision precision;
  bool channels_last;
  double learning_rate;
};

lt::Precision precision(lt::Context& context) {
  const auto word = context.choice("precision", {"auto", "float32", "bfloat16", "float16"});
  if (word == "bfloat16") return lt::Precision::bfloat16;
  if (word == "float16") return lt::Precision::float16;
  return word == "auto" ? lt::fastest_precision(context.communicator(), context.device()) : lt::Precision::float32;
}

double learning_rate(const lt::Context& context, std::int64_t batches, double global_batch) {
  if (!context.option("base-lr").empty()) return context.number("base-lr", 0) * static_cast<double>(batches);
  const auto rate = context.number("learning-rate", 0);
  const auto ratio = global_batch / context.number("reference-batch", 1);
  const auto scaling = context.choice("rate-scaling", {"linear", "sqrt", "none"});
  return scaling == "linear" ? rate * ratio : scaling == "sqrt" ? rate * std::sqrt(ratio) : rate;
}

// The images of a run that continues do not belong to its first steps.
std::int64_t warm_up_steps(const lt::Context& context) {
  return context.integer("num-warmup-batches", context.option("data").empty() ? 0 : 1, 100000);
}

Settings::Settings(lt::Context& context)
    : epochs(context.integer("epochs", 1, 100000)),
      max_steps(0),
      accumulate(context.integer("accumulate", 1, 100000)),
      batch_size(static_cast<std::uint64_t>(context.integer("batch-size", 1))),
      global_batch(static_cast<double>(batch_size) * static_cast<double>(context.world_size() * accumulate)),
      precision(::precision(context)),
      learning_rate(::learning_rate(context, context.world_size() * accumulate, global_batch)) {
  // Processors compute 16-bit convolutions much faster in this layout.
  const auto layout = context.choice("channels-last", {"auto", "true", "false"});
  channels_last = layout == "auto" ? precision != lt::Precision::float32 : layout == "true";
  if (context.flag("test-only") && (context.option("data").empty() || context.option("weights").empty()))
    throw lt::UsageError("--test-only evaluates --weights on the images of --data. Give both.");
  if (context.option("optimizer") == "lars" && context.flag("decay-all"))
    throw lt::UsageError(
        "--optimizer lars decays no biases and batch norms, but --decay-all asks for it, as the recipe torchvision-v1 "
        "does. Add --decay-all false, or use --optimizer sgd.");
  // Without data it is a benchmark.
  if (context.option("data").empty()) {
    max_steps = warm_up_steps(context) +
                context.integer("num-iters", 1, 100000) * context.integer("num-batches-per-iter", 1, 100000);
  }
}

std::vector<std::int64_t> milestones(const lt::Context& context) {
  auto all = ascending_numbers(context, "milestones");
  if (context.rank() == 0 && !all.empty() && all.back() >= context.integer("epochs")) {
    lt::log_warning(lt::text("With --epochs ", context.option("epochs"), " the learning rate does not fall at epoch ",
                             all.back(), " of --milestones. Set --milestones, or --schedule cosine."));
  }
  return all;
}

// The schedule of the recipe, which starts after the warm-up but for milestones, whose epochs count from the start.
lt::optim::Schedule schedule(const lt::Context& context, const lt::TrainingLength& length) {
  const auto per_epoch = length.steps_per_epoch;
  const auto warm_up = std::llround(context.number("warmup-epochs", 0, 100000) * static_cast<double>(per_epoch));
  const auto left = std::max<std::int64_t>(1, length.epochs * per_epoch - warm_up);
  const auto word = context.choice("schedule", {"milestones", "cosine", "polynomial", "constant"});
  auto after = lt::optim::constant();
  if (word == "milestones")
    after = lt::optim::by_epoch(lt::optim::multi_step_decay({.milestones = milestones(context)}), per_epoch);
  if (word == "cosine") after = lt::optim::cosine_decay({.steps = left});
  if (word == "polynomial") after = lt::optim::polynomial_decay({.steps = left, .power = 2});
  if (word != "milestones") after = [after, warm_up](std::int64_t step) { return after(step - warm_up); };
  // By default from the rate of one rank, as in Horovod's examples.
  const double first =
      context.option("warmup-factor").empty() ? 1.0 / context.world_size() : context.number("warmup-factor", 0, 1);
  return lt::optim::warm_up({.steps = warm_up, .first_factor = first}, after);
}

// ---- Data

struct Images {
  std::unique_ptr<ltd::Dataset> train, val;  // train is null with --test-only, val for synthetic images
  std::vector<std::string> class_names;      // empty if they are not known
  std::int64_t classes = 0;
  bool are_bytes = false;  // to be normalised on the GPU
};

// `word` is the name of a folder, or the beginning of the names of shards and an asterisk.
std::unique_ptr<ltd::ImageDataset> open_split(const lt::Context& context,
                                              const std::shared_ptr<const ltd::Storage>& storage,
                                              const std::string& word, const ltd::ImagePipelineOptions& images) {
  ltd::OpenImageSourceOptions options{
      .tf_record_images = {.label_offset = context.integer("label-offset", -1000000, 1000000)}};
  (word.ends_with('*') ? options.prefix : options.folder) = word.substr(0, word.find('*'));
  return std::make_unique<ltd::ImageDataset>(ltd::open_image_source(storage, options), images);
}

int side(const lt::Context& context, const char* name) {
  return static_cast<int>(context.integer(name, 32, 4096));
}

Images open_images(lt::Context& context, const Settings& settings) {
  auto training = ltd::training_images(side(context, "train-size"));
  training.random_resized_crop->scale.low = context.number("min-scale", 0, 1);
  training.flip_probability = context.number("hflip", 0, 1);
  training.trivial_augment = context.flag("trivial-augment");
  const double erasing = context.number("random-erasing", 0, 1);
  if (erasing > 0) training.random_erasing = {.probability = erasing};
  auto evaluation = ltd::evaluation_images(side(context, "val-size"), side(context, "resize"));

  Images images;
  images.are_bytes = context.device().is_cuda() && !training.random_erasing;
  const auto classes = context.integer("classes");
  if (context.option("data").empty()) {
    images.classes = classes > 0 ? classes : kImageNetClasses;
    images.train = std::make_unique<SyntheticImages>(kImageNetImages, images.classes,
                                                     ltd::ImageShape{.height = training.height,
                                                                     .width = training.width,
                                                                     .type = images.are_bytes ? at::kByte : at::kFloat,
                                                                     .format = settings.format()});
    return images;
  }
  for (auto* pipeline : {&training, &evaluation}) {
    pipeline->layout = settings.channels_last ? ltd::Layout::nhwc : ltd::Layout::nchw;
    if (images.are_bytes) pipeline->type = ltd::PixelType::uint8;
  }
  const auto storage = context.storage("data");
  std::unique_ptr<ltd::ImageDataset> train;
  if (!context.flag("test-only")) train = open_split(context, storage, context.option("train"), training);
  auto val = open_split(context, storage, context.option("val"), evaluation);
  if (train && train->classes() != val->classes()) {
    throw lt::UsageError("--train and --val have different classes. Give both a folder for every class.");
  }
  images.class_names = val->classes();
  images.classes = classes > 0 ? classes : std::ssize(images.class_names);
  if (!images.class_names.empty() && images.classes != std::ssize(images.class_names)) {
    throw lt::UsageError(lt::text("--classes is ", images.classes, ", but the data have ", images.class_names.size(),
                                  " classes. Leave the option out."));
  }
  if (images.classes == 0) {
    throw lt::UsageError("The data do not tell the number of classes. Give it as --classes, such as 1000.");
  }
  images.train = std::move(train);
  images.val = std::move(val);
  return images;
}

ltd::DataLoaderOptions loader_options(const lt::Context& context, const Settings& settings, const Images& images) {
  ltd::DataLoaderOptions options{.batch_size = settings.batch_size,
                                 .workers = static_cast<int>(context.integer("workers", 0, 1024)),
                                 .classes = images.classes};
  if (images.are_bytes) {
    options.normalize_on_device = {.format = settings.channels_last ? at::MemoryFormat::ChannelsLast
                                                                    : at::MemoryFormat::Contiguous};
  }
  return options;
}

ltd::DataLoaderOptions training_options(const lt::Context& context, const Settings& settings, const Images& images) {
  auto options = loader_options(context, settings, images);
  // Shards are read a few at a time; for single files any order costs the same.
  options.order = images.train->blocks().empty() ? ltd::Order::shuffled : ltd::Order::blocks;
  options.remainder = ltd::Remainder::drop;
  options.repetitions = static_cast<std::uint64_t>(context.integer("repetitions", 1, 1000));
  options.bad_samples.maximum_count = static_cast<std::uint64_t>(context.integer("bad-samples"));
  const double mixup = context.number("mixup", 0);
  const double cutmix = context.number("cutmix", 0);
  if (mixup > 0 || cutmix > 0)
    options.mixing = {.classes = images.classes, .mixup_alpha = mixup, .cutmix_alpha = cutmix};
  return options;
}

// ---- Training

void load_initial_weights(const lt::Context& context, torch::nn::Module& model, const Images& images) {
  const auto path = context.option("weights");
  if (path.empty()) return;
  const auto info = lt::read_classifier_info(path);
  if (!info.classes.empty() && !images.class_names.empty() && info.classes != images.class_names) {
    throw lt::UsageError("The classes of '" + path +
                         "' have other names, or another order, than those of --data. Give data with the same classes, "
                         "or use transfer_learning.");
  }
  if (info.mean != lt::ClassifierInfo{}.mean || info.standard_deviation != lt::ClassifierInfo{}.standard_deviation) {
    throw lt::UsageError("'" + path +
                         "' is for images of another normalisation than ImageNet's, which train_resnet has.");
  }
  const bool same_sizes = info.image_side == side(context, "val-size") && info.short_side == side(context, "resize");
  if (!info.model.empty() && !same_sizes && context.rank() == 0) {
    lt::log_warning(lt::text("'", path, "' is for images of --val-size ", info.image_side, " and --resize ",
                             info.short_side, ", and is used with ", context.option("val-size"), " and ",
                             context.option("resize"), "."));
  }
  lt::load_weights(model, path);
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const lt::Context& context, const torch::nn::Module& model,
                                                        double rate) {
  const double momentum = context.number("momentum", 0, 1);
  const double decay = context.number("weight-decay", 0);
  if (context.choice("optimizer", {"sgd", "lars"}) == "lars") {
    return std::make_unique<lt::optim::Lars>(model.parameters(),
                                             lt::optim::LarsOptions(rate).momentum(momentum).weight_decay(decay));
  }
  const auto options = torch::optim::SGDOptions(rate).momentum(momentum).weight_decay(decay);
  return std::make_unique<lt::optim::FusedSgd>(
      lt::optim::parameter_groups(model, options, {.decay_one_dimensional = context.flag("decay-all")}), options);
}

// torchvision's reference training updates its average every 32 steps, with a decay for 32 of its steps of one image
// and one epoch: the same for one step.
std::optional<lt::optim::MovingAverageOptions> moving_average(const lt::Context& context, const Settings& settings) {
  const double decay = context.number("ema", 0, 1);
  if (decay == 0) return {};
  return lt::optim::MovingAverageOptions{
      .decay = std::max(0.0, 1 - (1 - decay) * settings.global_batch / static_cast<double>(settings.epochs))};
}

lt::TrainerOptions trainer_options(lt::Context& context, const Settings& settings) {
  lt::TrainerOptions options{
      .epochs = settings.epochs,
      .max_steps = settings.max_steps,
      .accumulate = settings.accumulate,
      .precision = settings.precision,
      .schedule = [&context](const lt::TrainingLength& length) { return schedule(context, length); },
      .moving_average = moving_average(context, settings),
      .channels_last = settings.channels_last,
      .synchronizer = {.non_finite = settings.precision == lt::Precision::float16 ? lt::NonFinite::skipped
                                                                                  : lt::NonFinite::fatal}};
  if (context.flag("fp16-allreduce"))
    options.synchronizer.wire_format =
        std::make_shared<lt::HalfPrecisionWireFormat>(lt::HalfPrecisionOptions{.type = at::kHalf});
  if (settings.max_steps > 0) {
    options.checkpoints.enabled = false;
  } else {
    options.checkpoints.metric = "accuracy";
    options.checkpoints.best = lt::CheckpointRetention::Best::highest;
  }
  return options;
}

void show_settings(lt::Context& context, const Settings& settings) {
  std::vector<std::string> words;
  for (const auto& [name, value] : context.fixed_options()) words.push_back(name + " " + (value.empty() ? "-" : value));
  const std::string precision = settings.precision == lt::Precision::float32    ? "float32"
                                : settings.precision == lt::Precision::bfloat16 ? "bfloat16"
                                                                                : "float16";
  context.progress().print("settings: " + lt::join(words, ", "));
  const auto rate =
      lt::text("learning rate ", settings.learning_rate, " for ", settings.global_batch, " images per step; ");
  context.progress().print(
      lt::text(context.flag("test-only") ? "" : rate, precision, settings.channels_last ? ", channels_last" : ""));
  if (settings.max_steps > 0) {
    context.progress().print(
        "No --data: images per second are measured with synthetic images, and neither checkpoints nor weights are "
        "saved.");
  }
  context.summary().set("precision", precision).set("channels_last", settings.channels_last);
}

// Correct answers, and those among the five most probable classes.
torch::Tensor correct(const torch::Tensor& logits, const torch::Tensor& labels) {
  const auto best = std::get<1>(logits.topk(std::min<std::int64_t>(5, logits.size(1)), 1));
  const auto hits = best.eq(labels.unsqueeze(1));
  return torch::stack({hits.select(1, 0), hits.any(1)}, 1);
}

void train(lt::Context& context) {
  const Settings settings(context);
  const auto images = open_images(context, settings);
  const auto name = context.choice("model", lt::models::model_names());
  const auto metadata = lt::classifier_metadata({.model = name,
                                                 .classes = images.class_names,
                                                 .image_side = side(context, "val-size"),
                                                 .short_side = side(context, "resize")});
  show_settings(context, settings);

  const auto model = lt::models::make_model(
      name, {.classes = images.classes, .zero_init_residual = context.flag("zero-init-residual")});
  load_initial_weights(context, *model, images);
  model->to(context.device());
  const auto optimizer = make_optimizer(context, *model, settings.learning_rate);
  lt::Trainer trainer{context, model, *optimizer, trainer_options(context, settings)};

  std::optional<ltd::DataLoader> held_out;
  if (images.val) {
    auto options = loader_options(context, settings, images);
    options.order = ltd::Order::sequential;
    options.remainder = ltd::Remainder::exact;
    held_out.emplace(*images.val, options, context.shard());
    trainer.evaluate_with(*held_out, {"accuracy", "top5_accuracy"},
                          [&](const ltd::Batch& batch) { return correct(model->forward(batch.images), batch.labels); });
  }
  if (context.flag("test-only")) {
    trainer.evaluate();
    return;
  }

  ltd::DataLoader loader{*images.train, training_options(context, settings, images), context.shard()};
  Throughput throughput(warm_up_steps(context), context.integer("num-batches-per-iter", 1, 100000));
  trainer.after_step([&](const lt::TrainingState& state) {
    if (throughput.after_step(state.samples) && settings.max_steps > 0) {
      context.progress().print(lt::text("iteration ", throughput.iterations(), ": ",
                                        throughput.last() / context.world_size(), " images/s per rank"));
    }
  });
  trainer.after_epoch([&](const lt::TrainingState&) { throughput.leave_out_iteration(); });

  const auto loss_options =
      torch::nn::functional::CrossEntropyFuncOptions().label_smoothing(context.number("label-smoothing", 0, 1));
  trainer.fit(loader, [&](const ltd::Batch& batch) {
    return torch::nn::functional::cross_entropy(model->forward(batch.images), batch.labels, loss_options);
  });

  if (throughput.iterations() > 0) {
    context.progress().print(throughput.describe(context.world_size()));
    context.summary().set("images_per_s", throughput.mean()).set("images_per_s_interval", throughput.interval());
  }
  context.progress().print(ltd::describe(loader.statistics()));
  if (settings.max_steps > 0 || context.rank() != 0) return;
  if (auto* average = trainer.part().moving_average()) average->copy_to(*model);
  lt::save_weights(*model, context.output_directory() / "model.safetensors", metadata);
}

std::vector<lt::Option> options() {
  return {
      {.name = "data", .help = "Folder or URI with the images; empty: synthetic ones", .value = "", .may_change = true},
      {"train", "Folder of the training images below --data, or the first part of the names of shards and *", "train"},
      {"val", "The same for the images of the evaluation", "val"},
      {"label-offset", "Added to the labels in TFRecords: -1 where class 0 is the background", "0"},
      {"classes", "Number of classes; 0: that of the data", "0"},
      {"model", "Name of the model: resnet18 to resnet152, or another of torchvision's ResNets", "resnet50"},
      {.name = "weights", .help = "Weights to begin with, of the same classes", .value = ""},
      {.name = "test-only", .help = "Evaluate --weights, and train nothing", .may_change = true, .flag = true},
      {"batch-size", "Images per rank and step", "32"},
      {"accumulate", "Batches in a step", "1"},
      {.name = "workers", .help = "Threads that read and decode, per rank", .value = "2", .may_change = true},
      {.name = "bad-samples", .help = "Damaged images that a rank may replace", .value = "0", .may_change = true},
      // What it comes to is compared, and may not change.
      {.name = "precision",
       .help = "auto (bfloat16 where it is faster), float32, bfloat16 or float16",
       .value = "auto",
       .may_change = true},
      {"channels-last", "Layout of images and weights: auto (with 16 bits), true or false", "auto"},
      {.name = "fp16-allreduce", .help = "Send gradients as float16", .flag = true},
      {.name = "num-warmup-batches", .help = "Steps before images/s are measured", .value = "10", .may_change = true},
      {.name = "num-batches-per-iter", .help = "Steps of each measurement", .value = "10", .may_change = true},
      {.name = "num-iters", .help = "Measurements without --data", .value = "10", .may_change = true},
      // Settings of the recipes
      {"epochs", "Passes over the training images", "90"},
      {"optimizer", "sgd or lars", "sgd"},
      {"learning-rate", "Rate for --reference-batch images per step", "0.1"},
      {"reference-batch", "Images per step of all ranks for which the rate is", "256"},
      {"rate-scaling", "How the rate grows with the images per step: linear, sqrt or none", "linear"},
      {"base-lr", "Rate of one batch, times --accumulate and the number of ranks, instead of these three", ""},
      {"warmup-epochs", "Epochs in which the rate rises", "0"},
      {"warmup-factor", "Share of the rate in the first step; empty: the rate of one rank", ""},
      {"schedule", "milestones, cosine, polynomial or constant", "milestones"},
      {"milestones", "Epochs after which the rate is a tenth", "30,60,80"},
      {"momentum", "Momentum", "0.9"},
      {"weight-decay", "Weight decay", "1e-4"},
      {.name = "decay-all", .help = "Weight decay also of biases and batch norms", .flag = true},
      {"label-smoothing", "Probability that is divided among all classes", "0"},
      {"mixup", "Alpha of mixup; 0: none", "0"},
      {"cutmix", "Alpha of CutMix; 0: none", "0"},
      {"min-scale", "Least share of an image's area that a random crop has", "0.08"},
      {"hflip", "Probability of mirroring", "0.5"},
      {.name = "trivial-augment", .help = "TrivialAugmentWide", .flag = true},
      {"random-erasing", "Probability that a rectangle is erased", "0"},
      {"repetitions", "Repeated augmentation: how often an epoch has each of its images", "1"},
      {"ema", "Decay of the average of the weights, as --model-ema-decay of torchvision; 0: none", "0"},
      {.name = "zero-init-residual", .help = "Start each block as identity", .flag = true},
      {"train-size", "Height and width of the training images in pixels", "224"},
      {"val-size", "The same in evaluations", "224"},
      {"resize", "Shorter side of the image before the crop of evaluations", "256"},
  };
}

}  // namespace

int main(int argc, char** argv) {
  return lt::run(
      argc, argv,
      {.description = "Trains a ResNet on ImageNet or other images.", .options = options(), .recipes = recipes()},
      train);
}
