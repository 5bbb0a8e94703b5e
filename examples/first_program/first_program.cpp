#include <libtrain/libtrain.hpp>
#include <libtrain/models/resnet.hpp>

namespace lt = libtrain;

int main(int argc, char** argv) {
  return lt::run(argc, argv, [](lt::Context& context) {
    const lt::data::IdxImages images{context.option("data"), lt::data::IdxSplit::train, {.classes = 10}};
    lt::data::DataLoader loader{images, {.batch_size = 32}, context.shard()};
    auto model =
        lt::models::resnet18({.classes = 10, .width = 16, .input_channels = 1, .stem = lt::models::Stem::small});
    model->to(context.device());
    torch::optim::SGD sgd{model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9)};
    lt::GradientSynchronizer synchronizer{*model, context.communicator()};
    for (int epoch = 1; epoch <= 5; ++epoch) {
      torch::Tensor loss;
      for (auto& batch : loader.epoch(epoch)) {
        loss = torch::cross_entropy_loss(model->forward(batch.images), batch.labels);
        loss.backward();
        synchronizer.wait();
        sgd.step();
        synchronizer.zero_grad();
      }
      lt::log_info("epoch " + std::to_string(epoch) + ": loss " + std::to_string(loss.item<double>()));
    }
    lt::require_finite(*model);  // fails if the weights are not finite
  });
}
