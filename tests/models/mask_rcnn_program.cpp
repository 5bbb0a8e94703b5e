// What Mask R-CNN computes, for mask_rcnn_peer_test.py:
//
//   mask_rcnn_program --weights FILE --inputs FILE --result FILE [--steps N] [--average-counts]
//
// Each stage gets torchvision's inputs, so that a proposal on the edge of a threshold does not hide what follows. With
// --steps, the losses of steps of SGD instead, of the images' part of each rank.

#include <cstdint>
#include <string>
#include <vector>

#include <libtrain/checkpoint/weights.hpp>
#include <libtrain/libtrain.hpp>
#include <libtrain/models/mask_rcnn/detail/box_head.hpp>
#include <libtrain/models/mask_rcnn/detail/mask_head.hpp>
#include <libtrain/models/mask_rcnn/detail/pyramid_backbone.hpp>
#include <libtrain/models/mask_rcnn/detail/region_proposals.hpp>
#include <libtrain/models/mask_rcnn/image_batch.hpp>
#include <libtrain/models/mask_rcnn/mask_rcnn.hpp>
#include <libtrain/models/mask_rcnn/operators.hpp>

#include <tests/models/named_tensors.hpp>

namespace lt = libtrain;
using lt::test::NamedTensors;
using lt::test::write_tensors;
namespace models = libtrain::models;

namespace {

std::vector<at::Tensor> list_of(const NamedTensors& inputs, const std::string& name) {
  std::vector<at::Tensor> result;
  while (inputs.contains(name + "." + std::to_string(result.size()))) {
    result.push_back(inputs.at(name + "." + std::to_string(result.size())));
  }
  return result;
}

std::vector<models::ObjectTargets> targets_of(const NamedTensors& inputs) {
  std::vector<models::ObjectTargets> targets;
  const auto boxes = list_of(inputs, "boxes");
  const auto labels = list_of(inputs, "labels");
  const auto masks = list_of(inputs, "masks");
  for (std::size_t k = 0; k < boxes.size(); ++k) {
    const auto seed = inputs.at("seeds")[static_cast<std::int64_t>(k)].item<std::int64_t>();
    targets.push_back({boxes[k], labels[k], masks[k], static_cast<std::uint64_t>(seed)});
  }
  return targets;
}

// The parts of a Mask R-CNN, under its names.
struct Parts : torch::nn::Module {
  explicit Parts(const models::MaskRcnnOptions& options)
      : backbone(options), proposals(options), boxes(options), masks(options) {
    register_module("backbone", backbone);
    register_module("rpn", proposals);
    const auto heads = register_module("roi_heads", std::make_shared<torch::nn::Module>());
    boxes->register_in(*heads);
    masks->register_in(*heads);
  }

  models::detail::PyramidBackbone backbone;
  models::detail::RegionProposals proposals;
  models::detail::BoxHead boxes;
  models::detail::MaskHead masks;
};

void add(NamedTensors& result, const std::string& name, const std::vector<at::Tensor>& tensors) {
  for (std::size_t k = 0; k < tensors.size(); ++k) result[name + "." + std::to_string(k)] = tensors[k];
}

NamedTensors run_stages(const models::MaskRcnnOptions& options, const NamedTensors& inputs,
                        const std::string& weights) {
  Parts parts(options);
  lt::load_weights(parts, weights);
  NamedTensors result;
  const auto images = list_of(inputs, "image");
  parts.to(images.front().scalar_type());
  const auto batch = models::make_image_batch(images, {.min_size = 256, .max_size = 400});
  result["images"] = batch.images;
  const models::ImageSize padded{batch.images.size(2), batch.images.size(3)};
  const auto targets = targets_of(inputs);

  // Training.
  auto maps = parts.backbone->forward(batch.images);
  add(result, "maps", maps);
  const auto anchors = parts.proposals->forward(maps, padded);
  result["anchors"] = anchors.anchors;
  result["objectness"] = anchors.logits;
  result["anchor_corrections"] = anchors.corrections;
  auto given = anchors;
  given.logits = inputs.at("given.objectness");
  given.corrections = inputs.at("given.anchor_corrections");
  add(result, "proposals", parts.proposals->propose(given, batch.sizes));
  std::int64_t sampled = 0;
  const auto proposal_losses = parts.proposals->loss_sums(anchors, targets, sampled);
  const auto samples = parts.boxes->sample(list_of(inputs, "given.proposals"), targets);
  result["sample_boxes"] = samples.regions.boxes;
  result["sample_labels"] = samples.labels;
  result["sample_matches"] = samples.matches;
  maps.pop_back();
  const auto [logits, corrections] = parts.boxes->forward(maps, samples.regions);
  result["class_logits"] = logits;
  result["corrections"] = corrections;
  const auto box_losses = parts.boxes->loss_sums(logits, corrections, samples);
  std::int64_t positives = 0;
  const auto mask_loss = parts.masks->loss_sum(maps, samples, targets, positives);
  const auto regions = static_cast<double>(samples.labels.size(0));
  const auto anchors_sampled = static_cast<double>(sampled);
  const auto losses = torch::stack({proposal_losses.objectness / anchors_sampled,
                                    proposal_losses.boxes / anchors_sampled, box_losses.classifier / regions,
                                    box_losses.boxes / regions, mask_loss / static_cast<double>(positives)});
  result["losses"] = losses;
  losses.sum().backward();
  for (const auto& item : parts.named_parameters()) {
    if (item.value().grad().defined()) result["gradient." + item.key()] = item.value().grad().clone();
  }

  // Inference.
  parts.eval();
  const at::NoGradGuard no_grad;
  add(result, "evaluation_proposals", parts.proposals->propose(given, batch.sizes));
  const auto regions_given = list_of(inputs, "given.evaluation_proposals");
  auto detections =
      parts.boxes->detect(inputs.at("given.class_logits"), inputs.at("given.corrections"), regions_given, batch.sizes);
  for (std::size_t k = 0; k < detections.size(); ++k) {
    auto& of_image = detections[k];
    const auto masks =
        parts.masks
            ->forward(maps,
                      {.boxes = of_image.boxes,
                       .images = torch::full({of_image.labels.size(0)}, static_cast<int>(k), torch::kLong)},
                      of_image.labels)
            .sigmoid();
    const auto image = inputs.at("image." + std::to_string(k));
    const models::ImageSize original{image.size(1), image.size(2)};
    models::resize_boxes(of_image, batch.sizes[k], original);
    const auto number = "." + std::to_string(k);
    result["detected_boxes" + number] = of_image.boxes;
    result["detected_labels" + number] = of_image.labels;
    result["detected_scores" + number] = of_image.scores;
    result["pasted_masks" + number] = models::paste_masks(masks, of_image.boxes, original);
    result["thresholded_masks" + number] = models::paste_masks(masks, of_image.boxes, original, 0.5);
  }
  return result;
}

NamedTensors run_steps(lt::Context& context, const models::MaskRcnnOptions& options, const NamedTensors& inputs) {
  models::MaskRcnn model(options);
  lt::load_weights(*model, context.option("weights"));
  const auto images = list_of(inputs, "image");
  const auto targets = targets_of(inputs);
  const auto count = images.size() / static_cast<std::size_t>(context.world_size());
  const auto first = static_cast<std::ptrdiff_t>(count) * context.rank();
  const auto last = first + static_cast<std::ptrdiff_t>(count);
  const auto batch = models::make_image_batch({images.begin() + first, images.begin() + last},
                                              {.min_size = images.front().size(1), .max_size = 10000});
  std::vector<models::ObjectTargets> part(targets.begin() + first, targets.begin() + last);
  const auto average = [&](const at::Tensor& counts) {
    at::Tensor mean = counts.clone();
    context.communicator().all_reduce(mean, lt::ReduceOp::average).wait();
    return mean;
  };

  lt::GradientSynchronizer synchronizer{*model, context.communicator()};
  torch::optim::SGD sgd{model->parameters(), torch::optim::SGDOptions(1e-5).momentum(0.9)};
  std::vector<double> losses;
  for (std::int64_t step = 0; step < context.integer("steps"); ++step) {
    const auto loss =
        model->losses(batch, part, context.flag("average-counts") ? models::AverageCounts(average) : nullptr).sum();
    loss.backward();
    synchronizer.wait();
    sgd.step();
    synchronizer.zero_grad();
    losses.push_back(lt::mean_over_ranks(loss.item<double>(), context.communicator()));
  }
  return {{"losses", torch::tensor(losses, torch::kDouble)}};
}

void run_model(lt::Context& context) {
  const auto inputs = lt::read_tensors(context.option("inputs"));
  const models::MaskRcnnOptions options{.classes = context.integer("classes"), .trainable_stages = 3};
  const auto result = context.integer("steps") > 0 ? run_steps(context, options, inputs)
                                                   : run_stages(options, inputs, context.option("weights"));
  if (context.rank() == 0) write_tensors(context.option("result"), result);
}

}  // namespace

int main(int argc, char** argv) {
  return lt::run(
      argc, argv,
      {.description = "Writes what Mask R-CNN computes from given weights and images.",
       .options = {{"weights", "File of weights"},
                   {"inputs", "File with images, targets and torchvision's results"},
                   {"result", "File to write"},
                   {"classes", "Classes with the background", "7"},
                   {"steps", "Steps of SGD", "0"},
                   {.name = "average-counts", .help = "Divide losses by the counts of all ranks", .flag = true}}},
      run_model);
}
