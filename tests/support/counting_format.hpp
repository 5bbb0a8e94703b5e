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
    return std::make_unique<Average>(communicator.all_reduce(bucket.flat, ReduceOp::average));
  }

  /// Buckets that have been started since construction.
  int started() const { return started_; }

 private:
  class Average : public Reduction {
   public:
    explicit Average(Work work) : work_(std::move(work)) {}
    bool advance() override {
      work_.wait();
      return true;
    }

   private:
    Work work_;
  };

  int started_ = 0;
};

}  // namespace libtrain::test
