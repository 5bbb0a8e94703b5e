// What RoBERTa computes, for roberta_peer_test.py:
//
//   roberta_program --model FOLDER --weights FILE --inputs FILE --result FILE [--steps N] [--save FOLDER]
//
// The inputs are "ids", "mask" and "labels" of a padded batch. Without --steps: "padded", "packed" and "alone" (each
// text by itself) are logits in eval mode, "loss.*" and "gradient.*" those in train mode. With --steps: the losses of
// steps of AdamW, each rank with its part of the texts, means over the ranks. --save writes config.json and
// model.safetensors.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/checkpoint/weights.hpp>
#include <libtrain/libtrain.hpp>
#include <libtrain/models/roberta/roberta.hpp>

#include <tests/models/named_tensors.hpp>

namespace lt = libtrain;
namespace models = libtrain::models;
using lt::test::NamedTensors;
using lt::test::write_tensors;

namespace {

struct Batch {
  at::Tensor ids, mask, labels;
};

Batch part_of(const NamedTensors& inputs, std::int64_t first, std::int64_t count) {
  const auto part = [&](const char* name) { return inputs.at(name).narrow(0, first, count); };
  return {part("ids"), part("mask"), part("labels")};
}

using Compute = std::function<at::Tensor(const Batch&)>;

// The same for either head.
struct Model {
  std::shared_ptr<torch::nn::Module> module;
  Compute padded, packed, padded_loss, packed_loss;
};

Model classifier(const models::RobertaConfig& config) {
  const auto model = models::RobertaForClassification(config.options).ptr();
  const auto task = config.options.task;
  const Compute padded = [=](const Batch& batch) { return model->forward(batch.ids, batch.mask); };
  const Compute packed = [=](const Batch& batch) {
    return model->forward(models::unpadded_texts(batch.ids, batch.mask, config.options.pad_id));
  };
  return {model, padded, packed,
          [=](const Batch& batch) { return models::classification_loss(task, padded(batch), batch.labels); },
          [=](const Batch& batch) { return models::classification_loss(task, packed(batch), batch.labels); }};
}

// Packed: the masked tokens alone, in their order.
Model masked_lm(const models::RobertaConfig& config) {
  const auto model = models::RobertaForMaskedLm(config.options).ptr();
  const auto labels_of_tokens = [](const Batch& batch) { return batch.labels.masked_select(batch.mask.ne(0)); };
  const Compute padded = [=](const Batch& batch) { return model->forward(batch.ids, batch.mask); };
  const Compute packed = [=](const Batch& batch) {
    const auto masked = labels_of_tokens(batch).ne(-100).nonzero().squeeze(1);
    return model->forward(models::unpadded_texts(batch.ids, batch.mask, config.options.pad_id), masked);
  };
  return {model, padded, packed,
          [=](const Batch& batch) { return models::masked_lm_loss(padded(batch), batch.labels); },
          [=](const Batch& batch) {
            const auto labels = labels_of_tokens(batch);
            return models::masked_lm_loss(packed(batch), labels.masked_select(labels.ne(-100)));
          }};
}

NamedTensors run_once(Model& model, const Batch& batch) {
  NamedTensors result;
  model.module->eval();
  {
    const at::NoGradGuard no_grad;
    result["padded"] = model.padded(batch);
    result["packed"] = model.packed(batch);
    std::vector<at::Tensor> alone;
    for (std::int64_t k = 0; k < batch.ids.size(0); ++k) {
      const auto text = [&](const at::Tensor& whole) { return whole.narrow(0, k, 1); };
      const auto tokens_of = [&](const at::Tensor& whole) {
        return text(whole).masked_select(text(batch.mask).ne(0)).unsqueeze(0);
      };
      const auto ids = tokens_of(batch.ids);
      const bool has_label_of_token = batch.labels.dim() == 2 && batch.labels.size(1) == batch.ids.size(1);
      const auto labels = has_label_of_token ? tokens_of(batch.labels) : text(batch.labels);
      alone.push_back(model.packed({ids, at::ones_like(ids), labels}));
    }
    result["alone"] = at::cat(alone);
  }
  model.module->train();
  for (const auto& [name, loss_of] : {std::pair{"padded", model.padded_loss}, std::pair{"packed", model.packed_loss}}) {
    const auto loss = loss_of(batch);
    loss.backward();
    result[std::string("loss.") + name] = loss.detach();
    for (const auto& item : model.module->named_parameters()) {
      result[std::string("gradient.") + name + "." + item.key()] = item.value().grad().clone();
      item.value().mutable_grad().reset();
    }
  }
  return result;
}

NamedTensors run_steps(lt::Context& context, Model& model, const Batch& batch) {
  lt::GradientSynchronizer synchronizer{*model.module, context.communicator()};
  torch::optim::AdamW adamw{model.module->parameters(),
                            torch::optim::AdamWOptions(1e-3).betas({0.9, 0.98}).eps(1e-6).weight_decay(0.1)};
  std::vector<double> losses;
  for (std::int64_t step = 0; step < context.integer("steps"); ++step) {
    const auto loss = model.packed_loss(batch);
    loss.backward();
    synchronizer.wait();
    adamw.step();
    synchronizer.zero_grad();
    losses.push_back(lt::mean_over_ranks(loss.item<double>(), context.communicator()));
  }
  return {{"losses", torch::tensor(losses, torch::kDouble)}};
}

void run_model(lt::Context& context) {
  const auto inputs = lt::read_tensors(context.option("inputs"));
  auto config = models::read_roberta_config(context.option("model"));
  config.options.recompute_layers = context.flag("recompute-layers");
  auto model = config.masked_lm ? masked_lm(config) : classifier(config);
  lt::LoadWeightsOptions options{.may_be_unexpected = models::unused_roberta_tensors(config)};
  for (const auto& [from, to] : models::renamed_roberta_tensors(config.options.layers)) {
    options.rename.push_back({from, to});
  }
  lt::load_weights(*model.module, context.option("weights"), options);
  const auto texts = inputs.at("ids").size(0) / context.world_size();
  const auto batch = part_of(inputs, context.rank() * texts, texts);
  const auto result = context.integer("steps") > 0 ? run_steps(context, model, batch) : run_once(model, batch);
  if (context.rank() != 0) return;
  write_tensors(context.option("result"), result);
  if (const auto folder = context.option("save"); !folder.empty()) {
    models::write_roberta_config(config, folder);
    lt::save_weights(*model.module, folder + "/model.safetensors");
  }
}

}  // namespace

int main(int argc, char** argv) {
  return lt::run(argc, argv,
                 {.description = "Writes what a RoBERTa computes from given weights and texts.",
                  .options = {{"model", "Folder with a config.json"},
                              {"weights", "File of weights"},
                              {"inputs", "File with ids, mask and labels"},
                              {"result", "File to write"},
                              {"steps", "Steps of AdamW", "0"},
                              {"save", "Folder for config.json and model.safetensors", ""},
                              {.name = "recompute-layers", .help = "Keep only inputs of layers", .flag = true}}},
                 run_model);
}
