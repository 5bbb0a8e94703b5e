// Trains a small ResNet on handwritten digits, on any number of ranks:
//
//   mpirun -n 2 digits                      the 1,797 digits of 8x8 pixels that libtrain includes
//   mpirun -n 2 digits --data mnist-folder  MNIST's four files

#include <algorithm>

#include <libtrain/libtrain.hpp>
#include <libtrain/models/resnet.hpp>
#include <libtrain/train/mean_over_ranks.hpp>
#include <libtrain/train/synchronization_summary.hpp>

namespace lt = libtrain;

namespace {

// Mean and standard deviation of the training images' pixels, scaled to 0..1.
constexpr lt::data::IdxImagesOptions kScale{.mean = 0.3056f, .standard_deviation = 0.3761f, .classes = 10};

constexpr double kPeakRate = 0.005;
constexpr std::int64_t kWarmUpEpochs = 2;

// Linear warm-up for two epochs, or for half of a run of less than four, then cosine decay to zero.
lt::optim::Schedule learning_rates(std::int64_t epochs, std::int64_t steps_per_epoch) {
  const auto steps = epochs * steps_per_epoch;
  return lt::optim::warm_up({.steps = std::min(kWarmUpEpochs * steps_per_epoch, steps / 2), .first_factor = 0.01},
                            lt::optim::cosine_decay({.steps = steps}));
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

// Runs `work` in a span for `--timeline FILE`.
template <typename Work>
auto traced(lt::Context& context, const char* lane, const char* name, const Work& work) {
  const lt::TraceSpan span{context.trace(), lane, name};
  return work();
}

void train(lt::Context& context) {
  const auto data = context.option("data");
  const auto epochs = context.integer("epochs", 1, 100000);
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
  model->to(context.device());
  lt::GradientSynchronizer synchronizer{*model, context.communicator(), {.trace = context.trace()}};
  lt::ReplicaCheck replica_check{*model, context.communicator(), context.integer("check-replicas")};
  torch::optim::AdamW optimizer{model->parameters(), torch::optim::AdamWOptions(kPeakRate).weight_decay(0.05)};
  const auto loss_options = torch::nn::functional::CrossEntropyFuncOptions().label_smoothing(0.1);

  const auto steps = static_cast<std::int64_t>(loader.batches_per_epoch());
  lt::optim::LearningRate rate{optimizer, kPeakRate, learning_rates(epochs, steps)};
  context.metrics();  // fails before the training if the output folder cannot be written
  double samples = 0;
  double mean_loss = 0;
  double held_out_accuracy = 0;
  const lt::Stopwatch stopwatch;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    context.progress().begin_epoch(
        {.number = static_cast<int>(epoch + 1), .count = static_cast<int>(epochs), .steps = steps});
    std::int64_t step = 0;
    double loss_sum = 0;
    auto batches = loader.epoch(static_cast<std::uint64_t>(epoch));
    while (const auto batch = traced(context, "data", "wait for a batch", [&] { return batches.next(); })) {
      rate.set(epoch * steps + step++);
      const auto loss = traced(context, "compute", "forward", [&] {
        return torch::nn::functional::cross_entropy(model->forward(batch->images), batch->labels, loss_options);
      });
      traced(context, "compute", "backward", [&] { loss.backward(); });
      synchronizer.wait();
      traced(context, "compute", "step", [&] { optimizer.step(); });
      synchronizer.zero_grad();
      replica_check.after_step();
      loss_sum += loss.item<double>();
      context.metrics().write(lt::Record{"step"}
                                  .set("epoch", epoch)
                                  .set("step", step)
                                  .set("loss", loss.item<double>())
                                  .set("learning_rate", rate.of_first_group()));
      samples += static_cast<double>(batch->size() * context.world_size());
      context.progress().update(step, {{loss.item<double>(), "loss"}, {samples / stopwatch.seconds(), "images/s"}});
    }
    synchronizer.broadcast_buffers();
    mean_loss = lt::mean_over_ranks(loss_sum / static_cast<double>(steps), context.communicator());
    lt::check_replicas(*model, context.communicator());
    held_out_accuracy = lt::evaluate(*model, held_out, context.communicator(), [&](const lt::data::Batch& batch) {
                          return model->forward(batch.images).argmax(1).eq(batch.labels);
                        }).mean();
    context.progress().end_epoch({{mean_loss, "loss"}, {held_out_accuracy, "accuracy"}});
    context.metrics().write(lt::Record{"epoch"}.set("epoch", epoch).set("loss", mean_loss));
    context.metrics().write(lt::Record{"evaluation"}.set("epoch", epoch).set("accuracy", held_out_accuracy));
  }
  lt::require_finite(*model);
  context.summary()
      .set("epochs", epochs)
      .set("samples_per_s", samples / stopwatch.seconds())
      .set("loss", mean_loss)
      .set("accuracy", held_out_accuracy)
      .set("seconds_waiting_for_communication", synchronizer.statistics().seconds_waiting)
      .set("seconds_waiting_for_data", loader.seconds_waiting());
  lt::summarize(context, synchronizer);
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
                              {"check-replicas", "Steps between checks that all ranks have equal weights", "0"}}},
                 train);
}
