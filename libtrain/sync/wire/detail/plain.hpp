#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/sync/wire_format.hpp>

namespace libtrain::detail {

/// Gradients travel as they are: one all-reduce a bucket, in place, and no memory besides.
class PlainWireFormat : public WireFormat {
 public:
  std::string name() const override { return "plain"; }
  bool may_overflow() const override { return false; }
  void plan(const std::vector<BucketView>& /*buckets*/, Communicator& /*communicator*/) override {}
  std::unique_ptr<Reduction> start(const BucketView& bucket, Communicator& communicator) override;
};

/// `format`, or the plain one where none was chosen and there are ranks to send to.
std::shared_ptr<WireFormat> format_or_plain(const std::shared_ptr<WireFormat>& format, int world_size);

/// Starts to average `flat` over all ranks, in place: what every format does with buckets that it leaves alone.
std::unique_ptr<Reduction> average_in_place(const at::Tensor& flat, Communicator& communicator);

/// Throws UsageError where `bucket` is none of the so many that its format was given by plan().
void require_planned(const BucketView& bucket, std::size_t planned);

}  // namespace libtrain::detail
