// Trains a small ResNet on handwritten digits, on any number of ranks:
//
//   mpirun -n 2 digits                      the 1,797 digits of 8x8 pixels that come with libtrain
//   mpirun -n 2 digits --data mnist-folder  MNIST's four files

#include <algorithm>

#include <libtrain/libtrain.hpp>
#include <libtrain/models/resnet.hpp>

namespace lt = libtrain;

namespace {

// Moves the image by up to one pixel each way; what comes in at the edges is background.
void shift(lt::data::Sample& sample, lt::data::SampleRandom& random) {
  const auto down = random.integer(-1, 1);
  const auto right = random.integer(-1, 1);
  const auto background = sample.image.min();
  auto moved = torch::roll(sample.image, {down, right}, {1, 2});
  if (down != 0) moved.select(1, down > 0 ? 0 : -1).fill_(background);
  if (right != 0) moved.select(2, right > 0 ? 0 : -1).fill_(background);
  sample.image = moved;
}

// The share of held-out images that the model gets right, over all ranks; every image counts once.
double accuracy(lt::Context& context, lt::models::ResNet& model, lt::data::DataLoader& held_out) {
  const torch::NoGradGuard no_grad;
  model->eval();
  const auto counts = torch::zeros({2}, torch::kLong);
  for (auto& batch : held_out.epoch(0)) {
    if (batch.size() == 0) continue;
    counts[0] += model->forward(batch.images).argmax(1).eq(batch.labels).sum();
    counts[1] += batch.size();
  }
  context.communicator().all_reduce(counts).wait();
  model->train();
  return counts[0].item<double>() / counts[1].item<double>();
}

void train(lt::Context& context) {
  const auto epochs = context.integer("epochs", 1);
  const auto batch_size = static_cast<std::uint64_t>(context.integer("batch-size", 1));

  const lt::data::IdxImagesOptions scale{.mean = 0.3f, .standard_deviation = 0.37f};
  const lt::data::IdxImages train_set{context.option("data"), lt::data::IdxSplit::train, scale};
  const lt::data::IdxImages test_set{context.option("data"), lt::data::IdxSplit::test, scale};
  lt::data::DataLoader loader{
      train_set, {.batch_size = batch_size, .seed = context.seed(), .transform = shift}, context.shard()};
  lt::data::DataLoader held_out{test_set,
                                {.batch_size = 256,
                                 .order = lt::data::Order::sequential,
                                 .remainder = lt::data::Remainder::exact},
                                context.shard()};

  lt::models::ResNet model{lt::models::ResNetOptions{.layers = {1, 1},
                                                     .classes = train_set.classes(),
                                                     .width = 16,
                                                     .input_channels = 1,
                                                     .stem = lt::models::Stem::small}};
  model->to(context.device());
  lt::GradientSynchronizer synchronizer{*model, context.communicator()};
  torch::optim::SGD sgd{model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(5e-4)};

  const auto steps = static_cast<std::int64_t>(loader.batches_per_epoch());
  double loss_sum = 0;
  double held_out_accuracy = 0;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    context.progress().begin_epoch({.number = static_cast<int>(epoch) + 1, .count = static_cast<int>(epochs), .steps = steps});
    std::int64_t step = 0;
    loss_sum = 0;
    for (auto& batch : loader.epoch(static_cast<std::uint64_t>(epoch))) {
      const auto loss = torch::cross_entropy_loss(model->forward(batch.images), batch.labels);
      loss.backward();
      synchronizer.wait();
      sgd.step();
      synchronizer.zero_grad();
      loss_sum += loss.item<double>();
      context.progress().update(++step, {{loss.item<double>(), "loss"}});
    }
    synchronizer.broadcast_buffers();
    held_out_accuracy = accuracy(context, model, held_out);
    context.progress().end_epoch({{held_out_accuracy, "accuracy"}});
    context.metrics().write(lt::Record{"epoch"}.set("epoch", epoch).set("loss", loss_sum / static_cast<double>(steps)));
    context.metrics().write(lt::Record{"evaluation"}.set("epoch", epoch).set("accuracy", held_out_accuracy));
  }
  context.summary().set("epochs", epochs).set("accuracy", held_out_accuracy);
}

}  // namespace

int main(int argc, char** argv) {
  return lt::run(argc, argv,
                 {.description = "Trains a small ResNet on handwritten digits.",
                  .options = {{"data", "Folder with MNIST's four files", "examples/digits/data"},
                              {"epochs", "Passes over the training images", "12"},
                              {"batch-size", "Images per rank and step", "32"}}},
                 train);
}
