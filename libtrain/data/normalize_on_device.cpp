#include <libtrain/data/normalize_on_device.hpp>

#include <cstddef>

#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sub.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/resize.hpp>

namespace libtrain::data {

namespace {

constexpr std::int64_t kChannels = 3;

void require_options(const DeviceNormalization& options) {
  const bool known_type = options.type == at::kFloat || options.type == at::kHalf || options.type == at::kBFloat16;
  if (!known_type) {
    throw UsageError(text("DeviceNormalization::type is ", options.type, ", expected float32, float16 or bfloat16."));
  }
  if (options.format != at::MemoryFormat::Contiguous && options.format != at::MemoryFormat::ChannelsLast) {
    throw UsageError(text("DeviceNormalization::format is ", options.format, ", expected Contiguous or ChannelsLast."));
  }
}

// Memory goes back to the stream on which it was allocated: the allocator must know that this one uses it as well.
void use_on_current_stream(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return;
  tensor.record_stream(c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device()));
}

}  // namespace

NormalizeOnDevice::NormalizeOnDevice(const DeviceNormalization& options, c10::Device device) : options_(options) {
  require_options(options);
  const auto mean = at::empty({1, kChannels, 1, 1}, at::kFloat);
  const auto factor = at::empty({1, kChannels, 1, 1}, at::kFloat);
  for (std::size_t channel = 0; channel < kChannels; ++channel) {
    const auto constants = detail::byte_normalization(options.normalization, channel);
    mean.mutable_data_ptr<float>()[channel] = constants.mean;
    factor.mutable_data_ptr<float>()[channel] = constants.factor;
  }
  mean_ = mean.to(device);
  factor_ = factor.to(device);
}

at::Tensor NormalizeOnDevice::operator()(const at::Tensor& images) const {
  const bool fits = images.defined() && images.scalar_type() == at::kByte && images.dim() == 4 &&
                    (images.size(1) == 1 || images.size(1) == kChannels) && images.device() == mean_.device();
  if (!fits) {
    throw UsageError(text(
        "Images to normalise must be uint8 [B, 1 or 3, H, W] on ", mean_.device().str(), ", but they are ",
        images.defined() ? text(images.toString(), " ", images.sizes(), " on ", images.device().str()) : "undefined",
        "."));
  }
  use_on_current_stream(mean_);
  use_on_current_stream(factor_);
  const auto mean = mean_.narrow(1, 0, images.size(1));
  const auto factor = factor_.narrow(1, 0, images.size(1));
  auto centered = at::empty(images.sizes(), images.options().dtype(at::kFloat), options_.format);
  at::sub_out(centered, images, mean);
  if (options_.type == at::kFloat) return centered.mul_(factor);
  auto result = at::empty(images.sizes(), images.options().dtype(options_.type), options_.format);
  return at::mul_out(result, centered, factor);
}

}  // namespace libtrain::data
