#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/sync/wire_format.hpp>

namespace libtrain {

struct HalfPrecisionOptions {
  /// at::kBFloat16: the range of float32, each value within 2^-8 of itself. at::kHalf: within 2^-11, but nothing above
  /// 65504, and nothing but zero below 2^-25.
  at::ScalarType type = at::kBFloat16;
  /// Gradients are divided by it before they travel, and their sum is multiplied by predivide / world size: keeps large
  /// gradients, or small ones with a value below 1, within the range of float16. From 2^-20 to 2^20; 1 costs nothing,
  /// others two passes over the gradients.
  double predivide = 1;
  /// Buckets of fewer elements travel as they are: a message this small costs its latency, not its bytes.
  std::int64_t min_elements = 1024;
};

/// float32 and float64 gradients travel as 16-bit floats, which halves (quarters) what is sent. Each rank rounds once
/// on the way out; the host's backends add in float32 and round the average once more. Needs 2 bytes of memory an
/// element.
///
/// 16-bit buckets travel as they are, and so does everything in a group of one rank.
class HalfPrecisionWireFormat : public WireFormat {
 public:
  /// Throws UsageError for another type and for numbers out of range.
  explicit HalfPrecisionWireFormat(HalfPrecisionOptions options = {});

  /// "float16" or "bfloat16".
  std::string name() const override;
  std::string signature() const override;

  /// bfloat16 holds what float32 does, but not what float64 does.
  bool may_overflow() const override;

  void plan(const std::vector<BucketView>& buckets, Communicator& communicator) override;
  std::unique_ptr<Reduction> start(const BucketView& bucket, Communicator& communicator) override;

 private:
  const HalfPrecisionOptions options_;
  std::vector<at::Tensor> wires_;  // what travels for each bucket; undefined for those that travel as they are
  bool narrows_float64_ = false;
};

}  // namespace libtrain
