// A training loop written by hand: gradient accumulation over several batches, clipping, a learning rate schedule,
// evaluation.
//
//   mpirun -n 2 custom_loop                        4 batches of 8 images per rank and step
//   mpirun -n 2 custom_loop --batches-per-step 1 --batch-size 32
//
// Every image is used once per epoch, so ranks may have different numbers of images in the last step.

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <libtrain/libtrain.hpp>
#include <libtrain/optim/gradient_clipping.hpp>

namespace lt = libtrain;

namespace {

// Mean and standard deviation of the training images' pixels, scaled to 0..1.
constexpr lt::data::IdxImagesOptions kScale{.mean = 0.3056f, .standard_deviation = 0.3761f, .classes = 10};

constexpr double kPeakRate = 0.1;
constexpr double kMaxGradientNorm = 1;

torch::nn::Sequential make_model(const lt::data::IdxImages& images) {
  return torch::nn::Sequential{torch::nn::Flatten(), torch::nn::Linear(images.height() * images.width(), 128),
                               torch::nn::ReLU(),    torch::nn::Linear(128, 64),
                               torch::nn::ReLU(),    torch::nn::Linear(64, images.classes())};
}

// The next `count` batches of an epoch, or the remaining ones.
std::vector<lt::data::Batch> take(lt::data::LoaderEpoch& epoch, std::int64_t count) {
  std::vector<lt::data::Batch> batches;
  while (std::ssize(batches) < count) {
    auto batch = epoch.next();
    if (!batch) break;
    batches.push_back(std::move(*batch));
  }
  return batches;
}

// Computes the gradient of the mean loss over these batches of all ranks; returns this rank's mean loss.
double accumulate(torch::nn::Sequential& model, const std::vector<lt::data::Batch>& batches,
                  lt::GradientSynchronizer& synchronizer) {
  std::int64_t images = 0;
  for (const auto& batch : batches) images += batch.size();
  synchronizer.set_samples(images);
  const auto sum = torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum);
  double mean_loss = 0;
  for (std::size_t index = 0; index < batches.size(); ++index) {
    const auto outputs = model->forward(batches[index].images);
    // The sum of these losses is the mean. A rank without images still takes part, with a weight of zero.
    const auto loss =
        torch::nn::functional::cross_entropy(outputs, batches[index].labels, sum) / std::max<std::int64_t>(images, 1);
    std::optional<lt::GradientSynchronizer::NoSync> guard;
    if (index + 1 < batches.size()) guard.emplace(synchronizer.no_sync());
    loss.backward();
    mean_loss += loss.item<double>();
  }
  synchronizer.wait();
  return mean_loss;
}

void train(lt::Context& context) {
  const auto data = context.option("data");
  const auto epochs = context.integer("epochs", 1, 100000);
  const auto batches_per_step = context.integer("batches-per-step", 1, 100000);
  const auto batch_size = static_cast<std::uint64_t>(context.integer("batch-size", 1));

  const lt::data::IdxImages train_set{data, lt::data::IdxSplit::train, kScale};
  const lt::data::IdxImages test_set{data, lt::data::IdxSplit::test, kScale};
  lt::data::DataLoader loader{
      train_set, {.batch_size = batch_size, .workers = 1, .remainder = lt::data::Remainder::exact}, context.shard()};
  lt::data::DataLoader held_out{
      test_set,
      {.batch_size = 256, .workers = 1, .order = lt::data::Order::sequential, .remainder = lt::data::Remainder::exact},
      context.shard()};

  auto model = make_model(train_set);
  model->to(context.device());
  lt::GradientSynchronizer synchronizer{*model, context.communicator(), {.trace = context.trace()}};
  torch::optim::SGD optimizer{model->parameters(), torch::optim::SGDOptions(kPeakRate).momentum(0.9)};

  const auto batches = static_cast<std::int64_t>(loader.batches_per_epoch());
  const auto steps = (batches + batches_per_step - 1) / batches_per_step;
  // A tenth of the run, but at most one epoch.
  const auto warm_up_steps = std::min(steps, epochs * steps / 10);
  lt::optim::LearningRate rate{optimizer, kPeakRate,
                               lt::optim::warm_up({.steps = warm_up_steps, .first_factor = 0.1},
                                                  lt::optim::cosine_decay({.steps = epochs * steps}))};

  context.metrics();  // fails before the training if the output folder cannot be written
  const lt::Stopwatch stopwatch;
  double held_out_accuracy = 0;
  double mean_loss = 0;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    context.progress().begin_epoch(
        {.number = static_cast<int>(epoch + 1), .count = static_cast<int>(epochs), .steps = steps});
    auto loader_epoch = loader.epoch(static_cast<std::uint64_t>(epoch));
    for (std::int64_t step = 0; step < steps; ++step) {
      rate.set(epoch * steps + step);
      mean_loss = accumulate(model, take(loader_epoch, batches_per_step), synchronizer);
      const double norm = lt::optim::clip_gradients(model->parameters(), {.max_norm = kMaxGradientNorm});
      optimizer.step();
      synchronizer.zero_grad();
      context.metrics().write(lt::Record{"step"}
                                  .set("epoch", epoch)
                                  .set("step", step)
                                  .set("loss", mean_loss)
                                  .set("gradient_norm", norm)
                                  .set("learning_rate", rate.of_first_group()));
      context.progress().update(step + 1, {{mean_loss, "loss"}, {norm, "norm"}});
    }
    lt::check_replicas(*model, context.communicator());
    held_out_accuracy = lt::evaluate(*model, held_out, context.communicator(), [&](const lt::data::Batch& batch) {
                          return model->forward(batch.images).argmax(1).eq(batch.labels);
                        }).mean();
    context.progress().end_epoch({{mean_loss, "loss"}, {held_out_accuracy, "accuracy"}});
    context.metrics().write(lt::Record{"evaluation"}.set("epoch", epoch).set("accuracy", held_out_accuracy));
  }
  lt::require_finite(*model);
  const auto statistics = synchronizer.statistics();
  context.summary()
      .set("epochs", epochs)
      .set("samples_per_s", static_cast<double>(train_set.size()) * static_cast<double>(epochs) / stopwatch.seconds())
      .set("loss", mean_loss)
      .set("accuracy", held_out_accuracy)
      .set("seconds_waiting_for_communication", statistics.seconds_waiting)
      .set("overlap_share", statistics.overlap_share())
      .set("seconds_waiting_for_data", loader.seconds_waiting());
}

}  // namespace

int main(int argc, char** argv) {
  return lt::run(argc, argv,
                 {.description = "Trains a small network on handwritten digits, in a loop written by hand.",
                  .options = {{.name = "data",
                               .help = "Folder with MNIST's four files",
                               .value = "examples/digits/data",
                               .may_change = true},
                              {"epochs", "Passes over the training images", "20"},
                              {"batch-size", "Images per rank and batch", "8"},
                              {"batches-per-step", "Batches per rank and step", "4"}}},
                 train);
}
