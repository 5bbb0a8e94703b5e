#include <libtrain/models/mask_rcnn/operators.hpp>

#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <libtrain/models/mask_rcnn/detail/cuda/link.hpp>
#include <libtrain/models/mask_rcnn/detail/matching.hpp>
#include <libtrain/models/mask_rcnn/detail/roi_align.hpp>

namespace libtrain::models {

namespace {

using RoiAlign = decltype(detail::roi_align_cpu);
using RoiAlignBackward = decltype(detail::roi_align_backward_cpu);

// The kernel that torch chooses by the device of the tensors.
template <typename Function, typename... Arguments>
auto call(const char* name, const Arguments&... arguments) {
  detail::link_cuda_operators();
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>().call(arguments...);
}

class RoiAlignFunction : public torch::autograd::Function<RoiAlignFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, at::TensorList maps, const at::Tensor& boxes,
                            const at::Tensor& images, const at::Tensor& levels, at::ArrayRef<double> scales,
                            std::int64_t output_size, std::int64_t sampling_ratio) {
    const at::AutoDispatchBelowADInplaceOrView below;
    torch::autograd::variable_list saved = maps.vec();
    saved.insert(saved.end(), {boxes, images, levels});
    context->save_for_backward(saved);
    context->saved_data["scales"] = scales.vec();
    context->saved_data["output_size"] = output_size;
    context->saved_data["sampling_ratio"] = sampling_ratio;
    return call<RoiAlign>("libtrain::roi_align", maps, boxes, images, levels, scales, output_size, sampling_ratio);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "roi_align has no second derivative, which create_graph asks for.");
    const auto saved = context->get_saved_variables();
    const std::size_t maps = saved.size() - 3;
    auto result = call<RoiAlignBackward>(
        "libtrain::roi_align_backward", gradients.front(), at::TensorList(saved).slice(0, maps), saved[maps],
        saved[maps + 1], saved[maps + 2], at::ArrayRef<double>(context->saved_data["scales"].toDoubleVector()),
        context->saved_data["output_size"].toInt(), context->saved_data["sampling_ratio"].toInt());
    result.resize(maps + 6);  // one for each of the other arguments, which have no gradient
    return result;
  }
};

at::Tensor roi_align_autograd(at::TensorList maps, const at::Tensor& boxes, const at::Tensor& images,
                              const at::Tensor& levels, at::ArrayRef<double> scales, std::int64_t output_size,
                              std::int64_t sampling_ratio) {
  return RoiAlignFunction::apply(maps, boxes, images, levels, scales, output_size, sampling_ratio);
}

// As torchvision's LevelMapper computes it, in the boxes' type.
at::Tensor levels_of(const at::Tensor& boxes, const RoiAlignOptions& options) {
  const at::Tensor size =
      ((boxes.select(1, 2) - boxes.select(1, 0)) * (boxes.select(1, 3) - boxes.select(1, 1))).sqrt();
  const double finest = std::log2(options.strides.front());
  const auto last = finest + static_cast<double>(options.strides.size()) - 1;
  const at::Tensor level = (at::log2(size / options.canonical_size) + 4 + 1e-6).floor();
  return level.clamp(finest, last).to(at::kLong) - static_cast<std::int64_t>(finest);
}

}  // namespace

at::Tensor box_iou(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.dim() == 2 && a.size(1) == 4 && b.dim() == 2 && b.size(1) == 4, "box_iou needs boxes [N, 4], but got ",
              a.sizes(), " and ", b.sizes(), ".");
  const auto area = [](const at::Tensor& boxes) {
    return (boxes.select(1, 2) - boxes.select(1, 0)) * (boxes.select(1, 3) - boxes.select(1, 1));
  };
  const at::Tensor top_left = at::maximum(a.slice(1, 0, 2).unsqueeze(1), b.slice(1, 0, 2));
  const at::Tensor bottom_right = at::minimum(a.slice(1, 2, 4).unsqueeze(1), b.slice(1, 2, 4));
  const at::Tensor sides = (bottom_right - top_left).clamp_min(0);
  const at::Tensor shared = sides.select(2, 0) * sides.select(2, 1);
  return shared / (area(a).unsqueeze(1) + area(b) - shared);
}

at::Tensor nms(const at::Tensor& boxes, const at::Tensor& scores, const at::Tensor& groups, double threshold) {
  return call<decltype(detail::nms_cpu)>("libtrain::nms", boxes, scores, groups, threshold);
}

at::Tensor match_boxes(const at::Tensor& truth, const at::Tensor& boxes, const MatchOptions& options) {
  return call<decltype(detail::match_boxes_cpu)>("libtrain::match_boxes", truth, boxes, options.at_least, options.below,
                                                 options.keep_best);
}

at::Tensor sample_labels(const at::Tensor& labels, std::int64_t count, double positive_fraction, std::uint64_t seed) {
  return call<decltype(detail::sample_labels_cpu)>("libtrain::sample_labels", labels, count, positive_fraction,
                                                   static_cast<std::int64_t>(seed));
}

at::Tensor roi_align(const std::vector<at::Tensor>& maps, const at::Tensor& boxes, const at::Tensor& images,
                     const RoiAlignOptions& options) {
  TORCH_CHECK(!maps.empty() && maps.size() == options.strides.size(), "roi_align needs a stride for each map, but got ",
              maps.size(), " maps and ", options.strides.size(), " strides.");
  std::vector<double> scales;
  for (const double stride : options.strides) scales.push_back(1 / stride);
  return call<RoiAlign>("libtrain::roi_align", at::TensorList(maps), boxes, images, levels_of(boxes, options),
                        at::ArrayRef<double>(scales), options.output_size, options.sampling_ratio);
}

at::Tensor mask_targets(const at::Tensor& masks, const at::Tensor& boxes, const at::Tensor& matches,
                        std::int64_t output_size) {
  return call<decltype(detail::mask_targets_cpu)>("libtrain::mask_targets", masks, boxes, matches, output_size);
}

TORCH_LIBRARY_FRAGMENT(libtrain, library) {
  library.def("nms(Tensor boxes, Tensor scores, Tensor groups, float threshold) -> Tensor");
  library.def("match_boxes(Tensor truth, Tensor boxes, float at_least, float below, bool keep_best) -> Tensor");
  library.def("sample_labels(Tensor labels, int count, float positive_fraction, int seed) -> Tensor");
  library.def("mask_targets(Tensor masks, Tensor boxes, Tensor matches, int output_size) -> Tensor");
  library.def(
      "roi_align(Tensor[] maps, Tensor boxes, Tensor images, Tensor levels, float[] scales, int output_size, int "
      "sampling_ratio) -> Tensor");
  library.def(
      "roi_align_backward(Tensor gradient, Tensor[] maps, Tensor boxes, Tensor images, Tensor levels, float[] scales, "
      "int output_size, int sampling_ratio) -> Tensor[]");
}

TORCH_LIBRARY_IMPL(libtrain, CPU, library) {
  library.impl("nms", detail::nms_cpu);
  library.impl("match_boxes", detail::match_boxes_cpu);
  library.impl("sample_labels", detail::sample_labels_cpu);
  library.impl("mask_targets", detail::mask_targets_cpu);
  library.impl("roi_align", detail::roi_align_cpu);
  library.impl("roi_align_backward", detail::roi_align_backward_cpu);
}

TORCH_LIBRARY_IMPL(libtrain, Autograd, library) {
  library.impl("roi_align", roi_align_autograd);
}

}  // namespace libtrain::models
