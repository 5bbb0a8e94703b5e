// Learns the object category of each pixel, on any number of ranks: pictures of different sizes with masks, in COCO's
// format.
//
//   mpirun -n 2 objects --data COCO --pictures train2017 --annotations annotations/instances_train2017.json

#include <string>
#include <vector>

#include <libtrain/libtrain.hpp>

namespace lt = libtrain;

namespace {

constexpr std::int64_t kIgnored = -100;  // label that cross_entropy_loss ignores

// The category of each pixel, int64 [B, H, W]: 0 for the background, kIgnored in crowds and in the padding.
torch::Tensor categories_of(const lt::data::DetectionBatch& batch) {
  const auto all = torch::full({batch.images.size(0), batch.images.size(2), batch.images.size(3)}, kIgnored,
                               batch.images.options().dtype(torch::kLong));
  for (std::int64_t k = 0; k < all.size(0); ++k) {
    const auto& target = batch.targets[static_cast<std::size_t>(k)];
    const auto picture = all[k]
                             .narrow(0, 0, batch.sizes[k][0].item<std::int64_t>())
                             .narrow(1, 0, batch.sizes[k][1].item<std::int64_t>());
    picture.fill_(0);
    for (std::int64_t object = 0; object < target.labels.size(0); ++object) {
      const auto label = target.crowd[object].item<bool>() ? kIgnored : target.labels[object].item<std::int64_t>();
      picture.masked_fill_(target.masks[object].to(torch::kBool), label);
    }
  }
  return all;
}

torch::nn::Sequential make_model(std::int64_t categories) {
  using torch::nn::Conv2d;
  const auto layer = [](std::int64_t in, std::int64_t out, std::int64_t dilation) {
    return Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(dilation).dilation(dilation));
  };
  return torch::nn::Sequential{
      layer(3, 16, 1),   torch::nn::ReLU(),           layer(16, 16, 2), torch::nn::ReLU(), layer(16, 16, 4),
      torch::nn::ReLU(), layer(16, 1 + categories, 1)};
}

void train(lt::Context& context) {
  const auto epochs = context.integer("epochs", 1, 100000);
  const auto batch_size = static_cast<std::uint64_t>(context.integer("batch-size", 1));
  const auto side = static_cast<int>(context.integer("size", 8, 4096));

  const auto storage = context.storage("data");
  const auto open = [&](double flip_probability) {
    return lt::data::CocoDetection{
        storage,
        context.option("pictures"),
        context.option("annotations"),
        {.images = {.shorter_side = lt::data::ShorterSide{.min_size = side, .max_size = 2 * side},
                    .flip_probability = flip_probability}}};
  };
  const auto mirrored = open(0.5);
  const auto unchanged = open(0);
  const auto pad = [](const std::vector<lt::data::DetectionSample>& samples) {
    return lt::data::pad_detections(samples, 8);
  };
  lt::data::DataLoaderOf loader(mirrored, pad, {.batch_size = batch_size}, context.shard());
  lt::data::DataLoaderOf once(unchanged, pad, {.batch_size = 1, .remainder = lt::data::Remainder::exact},
                              context.shard());

  auto model = make_model(std::ssize(mirrored.classes()));
  torch::optim::AdamW optimizer{model->parameters(), torch::optim::AdamWOptions(3e-3)};
  lt::Trainer trainer{context, model, optimizer, {.epochs = epochs, .evaluate_every_epochs = 0}};
  // For each picture, the share of its objects' pixels that get the right category.
  trainer.evaluate_with(once, {"accuracy"}, [&](const lt::data::DetectionBatch& batch) {
    const auto categories = categories_of(batch);
    const auto right = model->forward(batch.images).argmax(1).eq(categories);
    const auto objects = categories.gt(0);
    return right.logical_and(objects).sum({1, 2}) / objects.sum({1, 2}).clamp_min(1);
  });
  trainer.fit(loader, [&](const lt::data::DetectionBatch& batch) {
    return torch::cross_entropy_loss(model->forward(batch.images), categories_of(batch), {}, at::Reduction::Mean,
                                     kIgnored);
  });
}

}  // namespace

int main(int argc, char** argv) {
  return lt::run(
      argc, argv,
      {.description = "Learns the object category of each pixel.",
       .options =
           {{.name = "data", .help = "Folder or URI with pictures and annotations", .may_change = true},
            {.name = "pictures", .help = "Folder of the pictures in it", .value = "train2017", .may_change = true},
            {.name = "annotations",
             .help = "COCO's instances file in it",
             .value = "annotations/instances_train2017.json",
             .may_change = true},
            {"epochs", "Passes over the pictures", "10"},
            {"batch-size", "Pictures per rank and step", "4"},
            {"size", "Pixels of the shorter side", "256"}}},
      train);
}
