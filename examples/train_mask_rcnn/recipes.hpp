#pragma once

#include <vector>

#include <libtrain/libtrain.hpp>

/// Published trainings of Mask R-CNN with ResNet-50 and a feature pyramid on COCO, with the average precision of boxes
/// and masks that their sources give. `learning-rate` is for `reference-batch` images per step, of all ranks together.
inline std::vector<libtrain::Recipe> recipes() {
  return {
      {"torchvision",
       "torchvision's references/detection; box AP 37.9, mask AP 34.6",
       {{"epochs", "26"},
        {"decay-epochs", "16,22"},
        {"learning-rate", "0.02"},
        {"reference-batch", "16"},
        {"warmup-iters", "1000"},
        {"warmup-factor", "0.001"}}},
      {"nvidia",
       "the Mask R-CNN benchmark on Azure Machine Learning, with NVIDIA's defaults; box AP 37.7, mask AP 34.2",
       {{"iter", "50000"},
        {"decay-iters", "36000,48000"},
        {"learning-rate", "0.04"},
        {"reference-batch", "32"},
        {"warmup-iters", "500"},
        {"warmup-factor", "0.3333333"}}},
      {"shapes",
       "the tiny network on the pictures of make_shapes, in minutes on a CPU",
       {{"model", "tiny"},
        {"precision", "float32"},
        {"images-per-rank", "4"},
        {"min-size", "128"},
        {"max-size", "256"},
        {"epochs", "24"},
        {"decay-epochs", "18"},
        {"evaluate-epochs", "4"},
        {"learning-rate", "0.02"},
        {"reference-batch", "8"},
        {"warmup-iters", "50"},
        {"warmup-factor", "0.1"}}},
  };
}
