// What a model computes, for torchvision_peer_test.py:
//
//   models_program --model NAME --weights FILE --inputs FILE --result FILE [--steps N]
//
// Reads the weights, and "images" and "labels", of which each rank takes its part. Writes a safetensors file with
// "evaluation_logits", "training_logits" and "gradient.<parameter>" of rank 0's part, then "losses" of N steps of SGD,
// means over the ranks, and the model after them under its own names.

#include <cstdint>
#include <string>
#include <vector>

#include <libtrain/checkpoint/weights.hpp>
#include <libtrain/libtrain.hpp>
#include <libtrain/models/make_model.hpp>

#include <tests/models/named_tensors.hpp>

namespace lt = libtrain;
using lt::test::NamedTensors;
using lt::test::write_tensors;

namespace {

at::Tensor part_of_rank(const at::Tensor& whole, const lt::Context& context) {
  const auto length = whole.size(0) / context.world_size();
  return whole.narrow(0, context.rank() * length, length);
}

void run_model(lt::Context& context) {
  const auto inputs = lt::read_tensors(context.option("inputs"));
  const auto images = part_of_rank(inputs.at("images"), context);
  const auto labels = part_of_rank(inputs.at("labels"), context);
  const auto model = lt::models::make_model(
      context.option("model"), {.classes = context.integer("classes"), .input_channels = context.integer("channels")});
  lt::load_weights(*model, context.option("weights"));
  NamedTensors result;

  model->eval();
  {
    const at::NoGradGuard no_grad;
    result["evaluation_logits"] = model->forward(images);
  }
  model->train();
  result["training_logits"] = model->forward(images);
  torch::cross_entropy_loss(result["training_logits"], labels).backward();
  for (const auto& item : model->named_parameters()) {
    result["gradient." + item.key()] = item.value().grad().clone();
    item.value().mutable_grad().reset();
  }

  lt::load_weights(*model, context.option("weights"));
  lt::GradientSynchronizer synchronizer{*model, context.communicator()};
  torch::optim::SGD sgd{model->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)};
  std::vector<double> losses;
  for (std::int64_t step = 0; step < context.integer("steps"); ++step) {
    const auto loss = torch::cross_entropy_loss(model->forward(images), labels);
    loss.backward();
    synchronizer.wait();
    sgd.step();
    synchronizer.zero_grad();
    losses.push_back(lt::mean_over_ranks(loss.item<double>(), context.communicator()));
  }
  result["losses"] = torch::tensor(losses, torch::kDouble);
  for (const auto& [name, tensor] : lt::optim::named_tensors(*model)) result[name] = tensor;
  if (context.rank() == 0) write_tensors(context.option("result"), result);
}

}  // namespace

int main(int argc, char** argv) {
  return lt::run(argc, argv,
                 {.description = "Writes what a model computes from given weights and images.",
                  .options = {{"model", "A name of make_model()"},
                              {"weights", "File of weights"},
                              {"inputs", "File with images and labels"},
                              {"result", "File to write"},
                              {"classes", "Classes of the model", "1000"},
                              {"channels", "Channels of the images", "3"},
                              {"steps", "Steps of SGD", "0"}}},
                 run_model);
}
