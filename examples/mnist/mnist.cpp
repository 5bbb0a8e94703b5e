// The MNIST programs of Horovod's and PyTorch's examples, with their options, on any number of ranks:
//
//   mpirun -n 2 mnist --data FOLDER --fp16-allreduce                   FOLDER has MNIST's four files
//   mnist --rank 0 --world-size 2 --dist-url tcp://localhost:23456     each rank started by hand, with its number
//   mpirun -n 2 mnist --lr 0.05 --epochs 20                            the digits that libtrain includes, enlarged
//
// Of their options, --seed, --rank, --world-size, --dist-url and --dist-backend are those of every libtrain program,
// and --no-cuda is --device cpu.

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include <libtrain/libtrain.hpp>
#include <libtrain/models/make_model.hpp>

namespace lt = libtrain;

namespace {

// The networks' input: one channel of 28 x 28 pixels.
constexpr std::int64_t kSide = 28;

// Mean and standard deviation of MNIST's pixels, scaled to 0..1.
constexpr lt::data::IdxImagesOptions kScale{.mean = 0.1307f, .standard_deviation = 0.3081f, .classes = 10};

void enlarge(lt::data::Sample& sample, lt::data::SampleRandom& /*random*/) {
  sample.image = torch::upsample_bilinear2d(sample.image.unsqueeze(0), {kSide, kSide}, false).squeeze(0);
}

std::string size_of(const lt::data::IdxImages& images) {
  return lt::text(images.height(), " x ", images.width());
}

// What makes the images 28 x 28; empty if they are already.
lt::data::Transform to_input_size(const lt::data::IdxImages& images) {
  if (images.height() == kSide && images.width() == kSide) return {};
  if (images.height() == images.width() && images.width() < kSide) return enlarge;
  throw lt::UsageError("The images in --data are " + size_of(images) +
                       ". Use MNIST's of 28 x 28, or smaller square ones, which are enlarged.");
}

void train(lt::Context& context) {
  const auto data = context.option("data");
  const lt::data::IdxImages train_set{data, lt::data::IdxSplit::train, kScale};
  const lt::data::IdxImages test_set{data, lt::data::IdxSplit::test, kScale};
  const auto workers = static_cast<int>(context.integer("workers", 0, 1024));
  lt::data::DataLoader loader{train_set,
                              {.batch_size = static_cast<std::uint64_t>(context.integer("batch-size", 1)),
                               .workers = workers,
                               .transform = to_input_size(train_set)},
                              context.shard()};
  lt::data::DataLoader held_out{test_set,
                                {.batch_size = static_cast<std::uint64_t>(context.integer("test-batch-size", 1)),
                                 .workers = workers,
                                 .order = lt::data::Order::sequential,
                                 .remainder = lt::data::Remainder::exact,
                                 .transform = to_input_size(test_set)},
                                context.shard()};
  if (to_input_size(train_set)) {
    context.progress().print("images of " + size_of(train_set) + " are enlarged to 28 x 28");
  }

  const auto model = lt::models::make_model(context.choice("model", {"horovod_mnist", "pytorch_mnist"}),
                                            {.classes = 10, .input_channels = 1});
  torch::optim::SGD sgd{model->parameters(), torch::optim::SGDOptions(context.number("lr", 0) * context.world_size())
                                                 .momentum(context.number("momentum", 0, 1))
                                                 .weight_decay(context.number("weight-decay", 0))};
  lt::TrainerOptions options{.epochs = context.integer("epochs", 1, 100000),
                             .log_every_steps = context.integer("log-interval", 1)};
  if (context.flag("fp16-allreduce")) {
    options.synchronizer.wire_format =
        std::make_shared<lt::HalfPrecisionWireFormat>(lt::HalfPrecisionOptions{.type = at::kHalf});
  }
  lt::Trainer trainer{context, model, sgd, options};
  trainer.evaluate_with(held_out, {"test_loss", "accuracy"}, [&](const lt::data::Batch& batch) {
    const auto log_probabilities = model->forward(batch.images);
    return torch::stack({torch::nll_loss(log_probabilities, batch.labels, {}, at::Reduction::None),
                         log_probabilities.argmax(1).eq(batch.labels).to(torch::kFloat)},
                        1);
  });
  trainer.fit(loader, [&](const lt::data::Batch& batch) {
    return torch::nll_loss(model->forward(batch.images), batch.labels);
  });
}

}  // namespace

int main(int argc, char** argv) {
  return lt::run(
      argc, argv,
      {.description = "Trains the networks of Horovod's and PyTorch's MNIST examples.",
       .options =
           {{.name = "data",
             .help = "Folder with MNIST's four files",
             .value = "examples/digits/data",
             .may_change = true},
            {"model", "horovod_mnist or pytorch_mnist", "horovod_mnist"},
            {"batch-size", "Images per rank and step", "64"},
            {.name = "test-batch-size",
             .help = "Images per rank and step of the evaluation",
             .value = "1000",
             .may_change = true},
            {"epochs", "Passes over the training images", "10"},
            {"lr", "Learning rate of one rank; multiplied by the number of ranks", "0.01"},
            {"momentum", "Momentum of SGD", "0.5"},
            {"weight-decay", "Weight decay of SGD", "0"},
            {.name = "log-interval", .help = "Steps between records", .value = "10", .may_change = true},
            {.name = "fp16-allreduce", .help = "Send gradients as float16", .flag = true},
            {.name = "workers", .help = "Threads that read images, per rank", .value = "1", .may_change = true}}},
      train);
}
