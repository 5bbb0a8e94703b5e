// Trains a small ResNet on handwritten digits, on any number of ranks:
//
//   mpirun -n 2 digits                      the 1,797 digits of 8x8 pixels that libtrain includes
//   mpirun -n 2 digits --data mnist-folder  MNIST's four files

#include <algorithm>

#include <libtrain/libtrain.hpp>
#include <libtrain/models/resnet.hpp>

namespace lt = libtrain;

namespace {

// Mean and standard deviation of the training images' pixels, scaled to 0..1.
constexpr lt::data::IdxImagesOptions kScale{.mean = 0.3056f, .standard_deviation = 0.3761f, .classes = 10};

constexpr double kPeakRate = 0.005;
constexpr std::int64_t kWarmUpEpochs = 2;

// Linear warm-up for two epochs, or for half of a run of less than four, then cosine decay to zero.
lt::optim::Schedule learning_rates(const lt::TrainingLength& length) {
  return lt::optim::warm_up(
      {.steps = std::min(kWarmUpEpochs * length.steps_per_epoch, length.steps / 2), .first_factor = 0.01},
      lt::optim::cosine_decay({.steps = length.steps}));
}

// Shifts the image by up to one pixel in each direction; new pixels at the edges are background.
void shift(lt::data::Sample& sample, lt::data::SampleRandom& random) {
  const auto down = random.integer(-1, 1);
  const auto right = random.integer(-1, 1);
  const float background = -kScale.mean / kScale.standard_deviation;
  sample.image = torch::roll(sample.image, {down, right}, {1, 2});
  if (down != 0) sample.image.select(1, down > 0 ? 0 : -1).fill_(background);
  if (right != 0) sample.image.select(2, right > 0 ? 0 : -1).fill_(background);
}

void train(lt::Context& context) {
  const auto data = context.option("data");
  const auto batch_size = static_cast<std::uint64_t>(context.integer("batch-size", 1));

  const lt::data::IdxImages train_set{data, lt::data::IdxSplit::train, kScale};
  const lt::data::IdxImages test_set{data, lt::data::IdxSplit::test, kScale};
  lt::data::DataLoader loader{train_set, {.batch_size = batch_size, .workers = 1, .transform = shift}, context.shard()};
  lt::data::DataLoader held_out{
      test_set,
      {.batch_size = 256, .workers = 1, .order = lt::data::Order::sequential, .remainder = lt::data::Remainder::exact},
      context.shard()};

  lt::models::ResNet model{lt::models::ResNetOptions{.layers = {1, 1, 1},
                                                     .classes = train_set.classes(),
                                                     .width = 32,
                                                     .input_channels = 1,
                                                     .stem = lt::models::Stem::small}};
  torch::optim::AdamW optimizer{model->parameters(), torch::optim::AdamWOptions(kPeakRate).weight_decay(0.05)};
  lt::Trainer trainer{
      context, model, optimizer, {.epochs = context.integer("epochs", 1, 100000), .schedule = learning_rates}};

  lt::ReplicaCheck replica_check{*model, context.communicator(), context.integer("check-replicas")};
  trainer.after_step([&](const lt::TrainingState&) { replica_check.after_step(); });
  trainer.evaluate_with(held_out, {"accuracy"}, [&](const lt::data::Batch& batch) {
    return model->forward(batch.images).argmax(1).eq(batch.labels);
  });
  const auto loss_options = torch::nn::functional::CrossEntropyFuncOptions().label_smoothing(0.1);
  trainer.fit(loader, [&](const lt::data::Batch& batch) {
    return torch::nn::functional::cross_entropy(model->forward(batch.images), batch.labels, loss_options);
  });
}

}  // namespace

int main(int argc, char** argv) {
  return lt::run(argc, argv,
                 {.description = "Trains a small ResNet on handwritten digits.",
                  .options = {{.name = "data",
                               .help = "Folder with MNIST's four files",
                               .value = "examples/digits/data",
                               .may_change = true},
                              {"epochs", "Passes over the training images", "12"},
                              {"batch-size", "Images per rank and step", "32"},
                              {.name = "check-replicas",
                               .help = "Steps between checks that all ranks have equal weights",
                               .value = "0",
                               .may_change = true}}},
                 train);
}
