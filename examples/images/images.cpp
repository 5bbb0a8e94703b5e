// Trains a ResNet on photographs, on any number of ranks:
//
//   mpirun -n 2 images --data FOLDER
//
// FOLDER, a local path or a URI such as az://container/birds, contains the folders train and val: image files in
// folders named after their classes, or shards (tar, TFRecord, Parquet), such as those of libtrain-pack.

#include <memory>
#include <string>

#include <libtrain/libtrain.hpp>
#include <libtrain/models/make_model.hpp>

namespace lt = libtrain;

namespace {

using Images = std::shared_ptr<const lt::data::ImageSource>;

Images open_split(const std::shared_ptr<const lt::data::Storage>& storage, const std::string& split) {
  return lt::data::open_image_source(storage, {.folder = split});
}

void train(lt::Context& context) {
  const auto epochs = context.integer("epochs", 1, 100000);
  const auto batch_size = static_cast<std::uint64_t>(context.integer("batch-size", 1));
  const auto workers = static_cast<int>(context.integer("workers", 0, 1024));
  const auto side = static_cast<int>(context.integer("size", 32, 4096));
  const auto classes = context.integer("classes", 1);
  const auto bad_samples = static_cast<std::uint64_t>(context.integer("bad-samples"));

  const auto storage = context.storage("data");
  const lt::data::ImageDataset train_set{open_split(storage, "train"), lt::data::training_images(side)};
  const lt::data::ImageDataset test_set{open_split(storage, "val"), lt::data::evaluation_images(side, side * 8 / 7)};
  const auto global_batch = batch_size * static_cast<std::uint64_t>(context.world_size());
  lt::data::DataLoader loader{
      train_set,
      {.batch_size = batch_size,
       .workers = workers,
       // Shards are read a few at a time; for single files any order costs the same.
       .order = train_set.blocks().empty() ? lt::data::Order::shuffled : lt::data::Order::blocks,
       // Batch norm fails on a last batch of one small image.
       .remainder = train_set.size() < global_batch ? lt::data::Remainder::pad : lt::data::Remainder::drop,
       .classes = classes,
       .bad_samples = {.maximum_count = bad_samples}},
      context.shard()};
  lt::data::DataLoader held_out{test_set,
                                {.batch_size = batch_size,
                                 .workers = workers,
                                 .order = lt::data::Order::sequential,
                                 .remainder = lt::data::Remainder::exact,
                                 .classes = classes},
                                context.shard()};

  if (train_set.classes() != test_set.classes()) {
    throw lt::UsageError("train and val have different classes. Give both a folder for every class.");
  }

  const auto model = lt::models::make_model(context.choice("model", lt::models::model_names()), {.classes = classes});
  // --learning-rate is for 256 images per step and is scaled linearly, as in Goyal et al., arXiv:1706.02677.
  const double rate = context.number("learning-rate", 0) * static_cast<double>(batch_size) * context.world_size() / 256;
  torch::optim::SGD optimizer{model->parameters(), torch::optim::SGDOptions(rate).momentum(0.9).weight_decay(1e-4)};
  lt::Trainer trainer{
      context, model, optimizer, {.epochs = epochs, .synchronizer = {.non_finite = lt::NonFinite::fatal}}};
  trainer.evaluate_with(held_out, {"accuracy"}, [&](const lt::data::Batch& batch) {
    return model->forward(batch.images).argmax(1).eq(batch.labels);
  });
  trainer.fit(loader, [&](const lt::data::Batch& batch) {
    return torch::cross_entropy_loss(model->forward(batch.images), batch.labels);
  });
  context.progress().print(lt::data::describe(loader.statistics()));
}

}  // namespace

int main(int argc, char** argv) {
  return lt::run(
      argc, argv,
      {.description = "Trains a ResNet on image folders or shards.",
       .options =
           {{.name = "data", .help = "Folder or URI with train and val", .may_change = true},
            {"model", "resnet50 or another of torchvision's ResNets", "resnet50"},
            {"classes", "Number of classes", "1000"},
            {"epochs", "Passes over the training images", "90"},
            {"batch-size", "Images per rank and step", "32"},
            {"learning-rate", "Rate for 256 images per step; scaled with the global batch", "0.1"},
            {"size", "Height and width of the model's input in pixels", "224"},
            {.name = "workers", .help = "Threads that read and decode, per rank", .value = "2", .may_change = true},
            {.name = "bad-samples",
             .help = "Damaged images that a rank may replace",
             .value = "0",
             .may_change = true}}},
      train);
}
