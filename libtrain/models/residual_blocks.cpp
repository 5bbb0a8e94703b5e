#include <libtrain/models/residual_blocks.hpp>

#include <typeinfo>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/batchnorm.h>

#include <libtrain/models/detail/cuda/batch_norm.hpp>
#include <libtrain/models/frozen_batch_norm.hpp>

namespace libtrain::models::detail {

namespace {

// A factory's norm has the names of batch norm.
void zero_scale(const torch::nn::AnyModule& norm) {
  const at::NoGradGuard no_grad;
  norm.ptr()->named_parameters(/*recurse=*/false)["weight"].zero_();
}

// A class derived from LibTorch's batch norm may do more than that.
torch::nn::BatchNorm2dImpl* as_batch_norm(const torch::nn::AnyModule& norm) {
  const auto module = norm.ptr();
  return typeid(*module) == typeid(torch::nn::BatchNorm2dImpl) ? module->as<torch::nn::BatchNorm2d>() : nullptr;
}

at::Tensor norm_of(torch::nn::Conv2dImpl& convolution, torch::nn::AnyModule& norm, const at::Tensor& x,
                   const Residual& residual, bool is_rectified) {
  at::Tensor values, added;
  if (auto* frozen = norm.ptr()->as<FrozenBatchNorm2d>()) {
    values = frozen->after(convolution, x);
  } else {
    values = convolution.forward(x);
    auto* batch_norm = as_batch_norm(norm);
    if (batch_norm && can_fuse_batch_norm(*batch_norm, values)) {
      if (residual) added = residual();
      if (!added.defined() || (added.sizes() == values.sizes() && added.scalar_type() == values.scalar_type())) {
        return fused_batch_norm(*batch_norm, values, added, is_rectified);
      }
    }
    values = norm.forward(values);
  }
  if (residual) values += added.defined() ? added : residual();
  return is_rectified ? values.relu_() : values;
}

// The norm of the shortcut's convolution, or x if the shortcut is empty.
at::Tensor shortcut_of(torch::nn::SequentialImpl& shortcut, const at::Tensor& x) {
  if (shortcut.is_empty()) return x;
  return convolve(*shortcut[0]->as<torch::nn::Conv2d>(), *(shortcut.begin() + 1), x);
}

}  // namespace

torch::nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
                              std::int64_t groups) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).groups(groups).bias(false));
}

torch::nn::AnyModule make_norm(const NormFactory& factory, std::int64_t channels) {
  return factory ? factory(channels) : torch::nn::AnyModule(torch::nn::BatchNorm2d(channels));
}

at::Tensor convolve(torch::nn::Conv2dImpl& convolution, torch::nn::AnyModule& norm, const at::Tensor& x) {
  return norm_of(convolution, norm, x, /*residual=*/{}, /*is_rectified=*/false);
}

at::Tensor convolve_and_rectify(torch::nn::Conv2dImpl& convolution, torch::nn::AnyModule& norm, const at::Tensor& x,
                                const Residual& residual) {
  return norm_of(convolution, norm, x, residual, /*is_rectified=*/true);
}

torch::nn::Sequential projection(const ResidualBlockOptions& options, std::int64_t expansion) {
  const std::int64_t out = options.width * expansion;
  torch::nn::Sequential result;
  if (options.stride == 1 && options.channels == out) return result;
  result->push_back(convolution(options.channels, out, 1, options.stride));
  result->push_back(make_norm(options.norm, out));
  return result;
}

// The members are initialised in the order in which torchvision creates its modules (the shortcut first), and
// registered in the order in which it registers them (the shortcut last): the same seed then gives the same weights.

BasicBlockImpl::BasicBlockImpl(const ResidualBlockOptions& options)
    : downsample_(projection(options, kExpansion)),
      conv1_(convolution(options.channels, options.width, 3, options.stride)),
      conv2_(convolution(options.width, options.width, 3, 1)),
      bn1_(make_norm(options.norm, options.width)),
      bn2_(make_norm(options.norm, options.width)) {
  register_module("conv1", conv1_);
  register_module("bn1", bn1_.ptr());
  register_module("conv2", conv2_);
  register_module("bn2", bn2_.ptr());
  if (!downsample_->is_empty()) register_module("downsample", downsample_);
}

at::Tensor BasicBlockImpl::forward(const at::Tensor& x) {
  const at::Tensor out = convolve_and_rectify(*conv1_, bn1_, x);
  return convolve_and_rectify(*conv2_, bn2_, out, [&] { return shortcut_of(*downsample_, x); });
}

void BasicBlockImpl::zero_last_norm() {
  zero_scale(bn2_);
}

BottleneckImpl::BottleneckImpl(const ResidualBlockOptions& options)
    : downsample_(projection(options, kExpansion)),
      conv1_(convolution(options.channels, options.inner_width, 1, 1)),
      conv2_(convolution(options.inner_width, options.inner_width, 3, options.stride, options.groups)),
      conv3_(convolution(options.inner_width, options.width * kExpansion, 1, 1)),
      bn1_(make_norm(options.norm, options.inner_width)),
      bn2_(make_norm(options.norm, options.inner_width)),
      bn3_(make_norm(options.norm, options.width * kExpansion)) {
  register_module("conv1", conv1_);
  register_module("bn1", bn1_.ptr());
  register_module("conv2", conv2_);
  register_module("bn2", bn2_.ptr());
  register_module("conv3", conv3_);
  register_module("bn3", bn3_.ptr());
  if (!downsample_->is_empty()) register_module("downsample", downsample_);
}

at::Tensor BottleneckImpl::forward(const at::Tensor& x) {
  at::Tensor out = convolve_and_rectify(*conv1_, bn1_, x);
  out = convolve_and_rectify(*conv2_, bn2_, out);
  return convolve_and_rectify(*conv3_, bn3_, out, [&] { return shortcut_of(*downsample_, x); });
}

void BottleneckImpl::zero_last_norm() {
  zero_scale(bn3_);
}

}  // namespace libtrain::models::detail
