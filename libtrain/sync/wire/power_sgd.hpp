#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <libtrain/sync/wire_format.hpp>

namespace libtrain {

struct PowerSgdOptions {
  /// Columns of the factors. The paper trains image classifiers with 2, language models with 4.
  std::int64_t rank = 4;
  /// So many rounds travel as they are: early gradients turn faster than the iteration can follow. The paper starts at
  /// once, with a warm-up of the learning rate; PyTorch after 1000 rounds.
  std::int64_t start_round = 100;
  /// A gradient of n x m travels as factors where those have so many times fewer elements than it:
  /// (n + m) rank min_compression_rate <= n m. At least 1.
  double min_compression_rate = 2;
  /// Whether what a round did not send is added to the next round's gradient. Without, training usually stalls.
  bool error_feedback = true;
  /// Whether the iteration starts where the last round's ended, instead of at random.
  bool warm_start = true;
  /// Of the random start, on all ranks alike.
  std::uint64_t seed = 0;
};

/// PowerSGD (Vogels, Karimireddy and Jaggi, NeurIPS 2019, arXiv:1905.13727, algorithms 1 and 2): the average gradient
/// of a parameter, seen as a matrix M [n, m], travels as the product of P [n, rank] and Q^T [rank, m], found by one
/// step of a power iteration a round:
///
///     P = average of M Q;   P = orthonormal basis of P;   Q = average of M^T P;   gradient = P Q^T
///
/// For networks much slower than the processors: it costs three products with M a round and, with error feedback,
/// memory of the size of the gradients. What it sends is all-reduced, so time does not grow with the world size as it
/// does for sparse formats. All ranks get the same bits where their processors are alike.
///
/// - n is the size of the outermost dimension in memory: the output channels of convolutions, channels_last or not.
/// - Small gradients travel as they are, in one message; so do float16 and bfloat16 buckets, and everything
///   in a group of one rank.
/// - Error feedback keeps M - P (M^T P)^T with this rank's own M; its mean over the ranks is what the average lacks. A
///   round whose gradients are thrown away (skipped, or used nowhere) loses what it sent, not what it kept.
/// - Where a rank's gradient is not finite, that gradient is NaN on all ranks, and what was kept for it is kept.
/// - Gradients scaled against underflow leave an error of the same scale: change the scale seldom.
class PowerSgdWireFormat : public WireFormat {
 public:
  /// Throws UsageError for options out of range.
  explicit PowerSgdWireFormat(PowerSgdOptions options = {});
  ~PowerSgdWireFormat() override;

  /// "powersgd of rank 4".
  std::string name() const override;
  std::string signature() const override;

  /// Products of large numbers overflow before their sum would.
  bool may_overflow() const override { return true; }

  void plan(const std::vector<BucketView>& buckets, Communicator& communicator) override;
  std::unique_ptr<Reduction> start(const BucketView& bucket, Communicator& communicator) override;

 private:
  struct State;
  const PowerSgdOptions options_;
  const std::unique_ptr<State> state_;
};

}  // namespace libtrain
