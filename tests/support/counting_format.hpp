#pragma once

#include <memory>
#include <string>
#include <vector>

#include <libtrain/sync/wire_format.hpp>

namespace libtrain::test {

/// Gradients travel as they are, and the buckets that have been started are counted. One for each synchronizer.
class CountingFormat : public WireFormat {
 public:
  std::string name() const override { return "counting"; }
  bool may_overflow() const override { return false; }
  void plan(const std::vector<BucketView>& /*buckets*/, Communicator& /*communicator*/) override {}

  std::unique_ptr<Reduction> start(const BucketView& bucket, Communicator& communicator) override {
    ++started_;
    return average_in_place(bucket.flat, communicator);
  }

  /// Buckets that have been started since construction.
  int started() const { return started_; }

 private:
  int started_ = 0;
};

}  // namespace libtrain::test
