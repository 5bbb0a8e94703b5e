// A training loop written by hand: gradients of several batches for one step, clipping, a learning rate that follows a
// schedule, evaluation.
//
//   mpirun -n 2 custom_loop                        4 batches of 8 images a rank for each step
//   mpirun -n 2 custom_loop --batches-per-step 1 --batch-size 32
//
// Every image counts once an epoch, so that ranks may have different numbers of images in its last step.

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <libtrain/libtrain.hpp>
#include <libtrain/optim/gradient_clipping.hpp>

namespace lt = libtrain;

namespace {

// Of the training images' pixels, scaled to 0..1.
constexpr lt::data::IdxImagesOptions kScale{.mean = 0.3056f, .standard_deviation = 0.3761f, .classes = 10};

constexpr double kPeakRate = 0.1;
constexpr double kMaxGradientNorm = 1;

torch::nn::Sequential make_model(const lt::data::IdxImages& images) {
  return torch::nn::Sequential{torch::nn::Flatten(), torch::nn::Linear(images.height() * images.width(), 128),
                               torch::nn::ReLU(),    torch::nn::Linear(128, 64),
                               torch::nn::ReLU(),    torch::nn::Linear(64, images.classes())};
}

// The next batches of an epoch: `count` of them, or as many as are left.
std::vector<lt::data::Batch> take(lt::data::LoaderEpoch& epoch, std::int64_t count) {
  std::vector<lt::data::Batch> batches;
  while (std::ssize(batches) < count) {
    auto batch = epoch.next();
    if (!batch) break;
    batches.push_back(std::move(*batch));
  }
  return batches;
}

// Leaves the gradient of the mean loss over these batches of all ranks in the model; returns this rank's mean.
double accumulate(torch::nn::Sequential& model, const std::vector<lt::data::Batch>& batches,
                  lt::GradientSynchronizer& synchronizer) {
  std::int64_t images = 0;
  for (const auto& batch : batches) images += batch.size();
  synchronizer.set_samples(images);
  const auto sum = torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum);
  double mean_loss = 0;
  for (std::size_t index = 0; index < batches.size(); ++index) {
    const auto outputs = model->forward(batches[index].images);
    // Their sum is the mean. A rank without images still takes part; its gradients count for nothing.
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
  // A tenth of the run, but no more than an epoch.
  const auto warm_up_steps = std::min(steps, epochs * steps / 10);
  lt::optim::LearningRate rate{optimizer, kPeakRate,
                               lt::optim::warm_up({.steps = warm_up_steps, .first_factor = 0.1},
                                                  lt::optim::cosine_decay({.steps = epochs * steps}))};

  context.metrics();  // an output folder that cannot be written should be known before the training
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
                  .options = {{"data", "Folder with MNIST's four files", "examples/digits/data"},
                              {"epochs", "Passes over the training images", "20"},
                              {"batch-size", "Images that go through the network at once, per rank", "8"},
                              {"batches-per-step", "Batches of a rank whose gradients make one step", "4"}}},
                 train);
}
