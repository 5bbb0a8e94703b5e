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
  /// So many rounds are sent uncompressed: early gradients change direction faster than the iteration can follow. The
  /// paper starts at round 0, with a warm-up of the learning rate; PyTorch after 1000 rounds.
  std::int64_t start_round = 100;
  /// A gradient of n x m is sent as factors if (n + m) rank min_compression_rate <= n m: if they have fewer elements by
  /// at least this factor. At least 1.
  double min_compression_rate = 2;
  /// Whether the part of the gradient that a round did not send is added to the next round's. Without it, training
  /// usually stalls.
  bool error_feedback = true;
  /// Whether the iteration starts with the last round's result, instead of a random matrix.
  bool warm_start = true;
  /// Seed of the random matrix, the same on all ranks.
  std::uint64_t seed = 0;
};

/// PowerSGD (Vogels, Karimireddy and Jaggi, NeurIPS 2019, arXiv:1905.13727, algorithms 1 and 2): the average gradient
/// of a parameter, as a matrix M [n, m], is sent as the product of P [n, rank] and Q^T [rank, m], found by one step of
/// a power iteration in each round:
///
///     P = average of M Q;   P = orthonormal basis of P;   Q = average of M^T P;   gradient = P Q^T
///
/// For networks that are much slower than the processors: each round costs three products of the size of M
/// and, with error feedback, a fourth and memory of the size of the gradients. Factors are all-reduced, so the time
/// does not grow with the world size as for sparse formats. All ranks get the same bits if their processors are of one
/// kind.
///
/// - n is the size of the outermost dimension in memory: the output channels of convolutions, channels_last or not.
/// - Small gradients are sent unchanged, in one message; so are float16 and bfloat16 buckets, and everything in a group
///   of one rank.
/// - Error feedback keeps M - P (M^T P)^T with this rank's own M; its mean over the ranks is what the average lacks. If
///   a round's gradients are not used (such as in a skipped step), what it sent is lost, not what it kept.
/// - If a rank's gradient is not finite, that gradient is NaN on all ranks, and the error kept for it does not change.
/// - Checkpoints have none of this state: a resumed run counts its rounds from 0, draws anew and has kept no error.
/// - The error of scaled gradients (against underflow) has the same scale: change the scale rarely.
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

  bool keeps_state() const override { return true; }

  void plan(const std::vector<BucketView>& buckets, Communicator& communicator) override;
  std::unique_ptr<Reduction> start(const BucketView& bucket, Communicator& communicator) override;

 private:
  struct State;
  const PowerSgdOptions options_;
  const std::unique_ptr<State> state_;
};

}  // namespace libtrain
