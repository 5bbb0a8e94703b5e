#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <libtrain/data/image/image.hpp>

namespace libtrain::data {

/// What a batch of bytes becomes.
struct DeviceNormalization {
  Normalization normalization = kImageNetNormalization;
  at::ScalarType type = at::kFloat;                        ///< float32, float16 or bfloat16
  at::MemoryFormat format = at::MemoryFormat::Contiguous;  ///< or ChannelsLast
};

/// Normalises batches of bytes on their device, so that a quarter of the bytes of float32 images crosses to it.
///
/// The values are those of ImagePipeline with the same Normalization and type, bit by bit: (v - mean) * factor in
/// float32, one operation after the other, rounded to nearest even for the 16-bit types.
///
/// Any thread may call it.
class NormalizeOnDevice {
 public:
  /// The constants are copied to the device here; the host waits for it. Throws UsageError for another type or format,
  /// and for a mean or a standard deviation that ImagePipeline refuses.
  NormalizeOnDevice(const DeviceNormalization& options, c10::Device device);

  /// New images, of the options' type and format, of uint8 [B, C, H, W] on the constructor's device with C of 1 or 3; 1
  /// takes the first channel's constants. Two operations on the current stream, for which the host does not wait.
  /// Fastest where `images` have the options' format already. Throws UsageError for other tensors.
  at::Tensor operator()(const at::Tensor& images) const;

 private:
  DeviceNormalization options_;
  at::Tensor mean_;  // float32 [1, 3, 1, 1], in units of the bytes
  at::Tensor factor_;
};

}  // namespace libtrain::data
