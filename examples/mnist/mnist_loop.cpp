#include <libtrain/libtrain.hpp>

namespace lt = libtrain;

int main(int argc, char** argv) {
  return lt::run(argc, argv, [](lt::Context& context) {
    const lt::data::IdxImagesOptions scale{.mean = 0.1307f, .standard_deviation = 0.3081f, .classes = 10};
    const lt::data::IdxImages train_set{context.option("data"), lt::data::IdxSplit::train, scale};
    const lt::data::IdxImages test_set{context.option("data"), lt::data::IdxSplit::test, scale};
    lt::data::DataLoader loader{train_set, {.batch_size = 64}, context.shard()};
    lt::data::DataLoader test_loader{
        test_set, {.batch_size = 1000, .remainder = lt::data::Remainder::exact}, context.shard()};

    torch::nn::Sequential model{torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 16, 3).padding(1)),
                                torch::nn::BatchNorm2d(16),
                                torch::nn::ReLU(),
                                torch::nn::AdaptiveAvgPool2d(4),
                                torch::nn::Flatten(),
                                torch::nn::Linear(256, 10)};
    model->to(context.device());
    torch::optim::SGD sgd{model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)};
    lt::GradientSynchronizer synchronizer{*model, context.communicator()};
    const auto steps = static_cast<std::int64_t>(loader.batches_per_epoch());
    lt::optim::LearningRate rate{sgd, 0.1, lt::optim::by_epoch(lt::optim::step_decay({.every = 5}), steps)};

    std::int64_t step = 0;
    for (std::uint64_t epoch = 0; epoch < 10; ++epoch) {
      for (auto& batch : loader.epoch(epoch)) {
        rate.set(step++);
        torch::cross_entropy_loss(model->forward(batch.images), batch.labels).backward();
        synchronizer.wait();
        lt::optim::clip_gradients(model->parameters(), {.max_norm = 5});
        sgd.step();
        synchronizer.zero_grad();
      }
      synchronizer.broadcast_buffers();
      const auto correct = lt::evaluate(*model, test_loader, context.communicator(), [&](const auto& batch) {
        return model->forward(batch.images).argmax(1).eq(batch.labels);
      });
      lt::log_info(lt::text("epoch ", epoch, ": accuracy ", correct.mean()));
    }
    if (context.rank() == 0) lt::save_weights(*model, "mnist.safetensors");
  });
}
