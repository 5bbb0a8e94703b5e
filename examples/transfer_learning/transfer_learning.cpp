// Teaches a network that knows other classes to classify your images, on any number of ranks:
//
//   mpirun -n 2 transfer_learning --data birds --weights resnet18.pth
//
// The folder birds, a local path or a URI, contains the folders train and val, and they a folder of images for each
// class. outputs/model.safetensors is the network with the best accuracy on val, for the example classify.

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include <libtrain/libtrain.hpp>
#include <libtrain/models/make_model.hpp>

namespace lt = libtrain;

namespace {

constexpr const char* kLastLayer = "fc.";  // of torchvision's ResNets

// Images as the network of the weights knows them.
lt::data::ImageDataset open_split(const std::shared_ptr<const lt::data::Storage>& storage, const std::string& split,
                                  const lt::ClassifierInfo& info, lt::data::ImagePipelineOptions images) {
  images.channels = static_cast<int>(info.mean.size());
  std::ranges::copy(info.mean, images.normalization.mean.begin());
  std::ranges::copy(info.standard_deviation, images.normalization.standard_deviation.begin());
  return lt::data::ImageDataset{lt::data::open_image_source(storage, {.folder = split}), images};
}

// The last layer keeps its random values if the file has another number of classes.
void load(lt::models::ImageClassifier& model, const std::string& weights, lt::Context& context) {
  const auto result = lt::load_weights(model, weights, {.may_be_missing = {kLastLayer}});
  if (result.missing.empty()) return;
  context.progress().print("Replaced by random values for the new classes: " + lt::join(result.missing, ", "));
}

// Batch norms keep the statistics of the weights.
void freeze_backbone(lt::models::ImageClassifier& model) {
  lt::optim::freeze(model);
  lt::optim::unfreeze(model, {kLastLayer});
  model.eval();
}

// The weights of the checkpoint with the best accuracy, which rank 0 has, or those of the finished run that --resume
// names, if nothing was trained.
void write_best(const lt::Context& context, lt::models::ImageClassifier& model, const lt::Trainer& trainer,
                const std::map<std::string, std::string>& metadata) {
  if (context.rank() != 0) return;
  const auto best = trainer.best_checkpoint();
  if (!best.empty()) lt::load_weights(model, best / "model.safetensors");
  lt::save_weights(model, context.output_directory() / "model.safetensors", metadata);
}

void train(lt::Context& context) {
  const auto weights = context.option("weights");
  const auto batch_size = static_cast<std::uint64_t>(context.integer("batch-size", 1));
  const auto workers = static_cast<int>(context.integer("workers", 0, 1024));
  const auto side = static_cast<int>(context.integer("size", 32, 4096));
  const bool from_scratch = weights == "none";
  const bool frozen = context.flag("freeze-backbone");
  if (frozen && from_scratch) throw lt::UsageError("--freeze-backbone needs a trained network. Give it as --weights.");

  auto info = from_scratch ? lt::ClassifierInfo{} : lt::read_classifier_info(weights);
  if (!info.model.empty() && info.image_side != side && context.rank() == 0) {
    lt::log_warning(
        lt::text("'", weights, "' is for images of --size ", info.image_side, ", and is used with ", side, "."));
  }
  info.model = context.choice("model", lt::models::model_names());
  info.image_side = side;
  info.short_side = side * 8 / 7;
  const auto storage = context.storage("data");
  const auto train_set = open_split(storage, "train", info, lt::data::training_images(side));
  const auto test_set = open_split(storage, "val", info, lt::data::evaluation_images(side, info.short_side));
  info.classes = train_set.classes();
  if (info.classes.empty() || info.classes != test_set.classes()) {
    throw lt::UsageError("train and val must have the same classes, with names. Give both a folder for every class.");
  }
  const auto metadata = lt::classifier_metadata(info);

  const auto global_batch = batch_size * static_cast<std::uint64_t>(context.world_size());
  lt::data::DataLoader loader{
      train_set,
      {.batch_size = batch_size,
       .workers = workers,
       // Batch norm fails on a last batch of one small image.
       .remainder = train_set.size() < global_batch ? lt::data::Remainder::pad : lt::data::Remainder::drop},
      context.shard()};
  lt::data::DataLoader held_out{test_set,
                                {.batch_size = batch_size,
                                 .workers = workers,
                                 .order = lt::data::Order::sequential,
                                 .remainder = lt::data::Remainder::exact},
                                context.shard()};

  const auto model = lt::models::make_model(
      info.model, {.classes = std::ssize(info.classes), .input_channels = std::ssize(info.mean)});
  if (!from_scratch) load(*model, weights, context);
  if (frozen) freeze_backbone(*model);
  torch::optim::SGD optimizer{
      model->parameters(),
      torch::optim::SGDOptions(context.number("learning-rate", 0)).momentum(context.number("momentum", 0, 1))};
  lt::Trainer trainer{context,
                      model,
                      optimizer,
                      {.epochs = context.integer("num-epochs", 1, 100000),
                       .schedule =
                           [](const lt::TrainingLength& length) {
                             return lt::optim::by_epoch(lt::optim::step_decay({.every = 7, .factor = 0.1}),
                                                        length.steps_per_epoch);
                           },
                       .synchronizer = {.non_finite = lt::NonFinite::fatal},
                       .checkpoints = {.metric = "accuracy", .best = lt::CheckpointRetention::Best::highest}}};
  trainer.evaluate_with(held_out, {"accuracy"}, [&](const lt::data::Batch& batch) {
    return model->forward(batch.images).argmax(1).eq(batch.labels);
  });
  trainer.fit(loader, [&](const lt::data::Batch& batch) {
    return torch::cross_entropy_loss(model->forward(batch.images), batch.labels);
  });
  write_best(context, *model, trainer, metadata);
}

}  // namespace

int main(int argc, char** argv) {
  return lt::run(
      argc, argv,
      {.description = "Teaches a network that knows other classes to classify your images.",
       .options =
           {{.name = "data", .help = "Folder or URI with train and val", .may_change = true},
            {"weights", "Weights of --model: a .pth or safetensors file, or none to train from random values"},
            {"model", "resnet18 or another of torchvision's ResNets", "resnet18"},
            {.name = "freeze-backbone", .help = "Train only the last layer", .flag = true},
            {"learning-rate", "Learning rate, divided by 10 every 7 epochs", "0.001"},
            {"momentum", "Momentum of SGD", "0.9"},
            {"num-epochs", "Passes over the training images", "25"},
            {"batch-size", "Images per rank and step", "4"},
            {"size", "Height and width of the model's input in pixels", "224"},
            {.name = "workers", .help = "Threads that read and decode, per rank", .value = "2", .may_change = true}}},
      train);
}
