#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/sync/wire_format.hpp>

namespace libtrain {

struct HalfPrecisionOptions {
  /// at::kBFloat16: the range of float32 (but values from 3.396e38 on become infinite), with a relative error up to
  /// 2^-8. at::kHalf: up to 2^-11 for values from 2^-14 (6e-5) to 65504; smaller ones have an absolute error up to
  /// 2^-25, so that 1e-6 may be wrong by 3%, and up to 2^-25 become zero; values from 65520 on become infinite.
  at::ScalarType type = at::kBFloat16;
  /// Gradients are divided by it before they are sent, and their sum is multiplied by predivide / world size: keeps
  /// large gradients, or small ones with a value below 1, within the range of float16. From 2^-20 to 2^20; 1 costs
  /// nothing, other values cost two passes over the gradients.
  double predivide = 1;
  /// Buckets of fewer elements are sent unchanged: the cost of so small a message is its latency, not its bytes.
  std::int64_t min_elements = 1024;
};

/// Sends float32 and float64 gradients as 16-bit floats, a half or a quarter of the bytes. Each rank rounds once before
/// sending; the host's backends add in float32 and round the average once more. Needs 2 bytes of memory for each
/// element.
///
/// 16-bit buckets are sent unchanged, and so is everything in a group of one rank.
class HalfPrecisionWireFormat : public WireFormat {
 public:
  /// Throws UsageError for another type and for numbers out of range.
  explicit HalfPrecisionWireFormat(HalfPrecisionOptions options = {});

  /// "float16" or "bfloat16".
  std::string name() const override;
  std::string signature() const override;

  /// bfloat16 has the range of float32 (see HalfPrecisionOptions::type), but not that of float64.
  bool may_overflow() const override;
  bool is_recordable() const override { return true; }

  void plan(const std::vector<BucketView>& buckets, Communicator& communicator) override;
  std::unique_ptr<Reduction> start(const BucketView& bucket, Communicator& communicator) override;

 private:
  const HalfPrecisionOptions options_;
  std::vector<at::Tensor> wires_;  // what is sent for each bucket; undefined for buckets that are sent unchanged
  bool narrows_float64_ = false;
};

}  // namespace libtrain
