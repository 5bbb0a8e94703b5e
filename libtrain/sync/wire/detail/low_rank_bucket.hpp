#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/sync/wire/power_sgd.hpp>
#include <libtrain/sync/wire_format.hpp>

namespace libtrain::detail {

/// The state of PowerSGD for one gradient, kept between rounds. Q is transposed: both products then read M by rows.
struct LowRankMemory {
  std::vector<std::int64_t> sizes = {};    ///< of the gradient
  std::vector<std::int64_t> strides = {};  ///< of the gradient
  at::Tensor q = {};                       ///< [rank, columns]: the last average, the same on all ranks
  at::Tensor error = {};                   ///< [rows, columns]: this rank's; undefined without error feedback
  std::uint64_t draws = 0;                 ///< how often q was random, the same on all ranks
};

/// By the parameters' names, so that it outlives the plan.
using LowRankMemories = std::map<std::string, std::shared_ptr<LowRankMemory>>;

/// PowerSGD for one bucket. A round calls send_p, send_q and reconstruct, in this order; each waits for the collectives
/// of the one before it. send_p returns the first collective of the round, send_q the last. See PowerSgdWireFormat for
/// the formulas.
class LowRankBucket {
 public:
  /// Whether any gradient of the bucket is compressed. The same on all ranks.
  static bool compresses(const BucketView& bucket, const PowerSgdOptions& options);

  /// Uses the entries of `memories` for its gradients, and adds those that are missing.
  LowRankBucket(const BucketView& bucket, const PowerSgdOptions& options, LowRankMemories& memories,
                Communicator& communicator);

  Work send_p(Communicator& communicator);
  Work send_q(Communicator& communicator);
  void reconstruct();

  /// Reduction::abandon(), at any point of the round.
  void abandon();

 private:
  struct Matrix {
    std::string name = {};
    at::Tensor gradient = {};  // [rows, columns], in the bucket; in a round, the error is added to it
    at::Tensor p = {};         // [rows, rank]
    at::Tensor own_q = {};     // [rank, columns]: this rank's, before the average
    std::shared_ptr<LowRankMemory> memory = {};
    bool finite = true;
  };

  void allocate(Communicator& communicator);
  void recall(Matrix& matrix, const at::Tensor& gradient, LowRankMemories& memories) const;
  void draw(const Matrix& matrix) const;
  void give_up(const Matrix& matrix) const;

  const PowerSgdOptions options_;
  std::vector<Matrix> matrices_;
  std::vector<at::Tensor> others_;  // gradients that are sent unchanged: one-dimensional parts of the bucket

  // The messages.
  at::Tensor others_flat_;
  at::Tensor p_flat_;
  at::Tensor own_q_flat_;
  at::Tensor q_flat_;

  Work others_work_;
  Work p_work_;
  Work q_work_;
};

}  // namespace libtrain::detail
