#pragma once

#include <memory>
#include <string>
#include <vector>

#include <libtrain/sync/wire_format.hpp>

namespace libtrain::detail {

/// Sends gradients unchanged: one all-reduce for each bucket, in place, without additional memory.
class PlainWireFormat : public WireFormat {
 public:
  std::string name() const override { return "plain"; }
  bool may_overflow() const override { return false; }
  bool is_recordable() const override { return true; }
  void plan(const std::vector<BucketView>& /*buckets*/, Communicator& /*communicator*/) override {}
  std::unique_ptr<Reduction> start(const BucketView& bucket, Communicator& communicator) override;
};

/// `format`, or the plain one if it is null and there is more than one rank.
std::shared_ptr<WireFormat> format_or_plain(const std::shared_ptr<WireFormat>& format,
                                            const Communicator& communicator);

}  // namespace libtrain::detail
