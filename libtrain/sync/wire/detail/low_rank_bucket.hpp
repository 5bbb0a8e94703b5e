#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/sync/wire/power_sgd.hpp>
#include <libtrain/sync/wire_format.hpp>

namespace libtrain::detail {

/// What PowerSGD keeps of one gradient from round to round. Q is kept transposed: both products then read M by rows.
struct LowRankMemory {
  std::vector<std::int64_t> sizes = {};    ///< of the gradient it belongs to
  std::vector<std::int64_t> strides = {};  ///< the same
  at::Tensor q = {};                       ///< [rank, columns]: the last average, the same on all ranks
  at::Tensor error = {};                   ///< [rows, columns]: this rank's; undefined without error feedback
  std::uint64_t draws = 0;                 ///< of a random q, the same on all ranks
};

/// By the parameters' names, so that it outlives the plan.
using LowRankMemories = std::map<std::string, std::shared_ptr<LowRankMemory>>;

/// One bucket's share of PowerSGD. A round calls send_p, send_q and finish, in this order; each waits for what the one
/// before it has sent. See PowerSgdWireFormat for the formulas.
class LowRankBucket {
 public:
  /// Whether any of its gradients is worth it. The same on all ranks.
  static bool compresses(const BucketView& bucket, const PowerSgdOptions& options);

  /// Takes what `memories` have for its gradients, and leaves there what is new.
  LowRankBucket(const BucketView& bucket, const PowerSgdOptions& options, LowRankMemories& memories,
                Communicator& communicator);

  void send_p(Communicator& communicator);
  void send_q(Communicator& communicator);
  void finish();

  /// Of what the last of these calls has waited for.
  std::optional<WorkTimes> times() const { return times_; }

 private:
  struct Matrix {
    std::string name = {};
    at::Tensor gradient = {};  // [rows, columns], its place in the bucket; in a round, the error is added to it
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
  std::vector<at::Tensor> others_;  // what travels as it is: one-dimensional places in the bucket

  // What is sent, each in one message.
  at::Tensor others_flat_;
  at::Tensor p_flat_;
  at::Tensor own_q_flat_;
  at::Tensor q_flat_;

  Work others_work_;
  Work p_work_;
  Work q_work_;
  std::optional<WorkTimes> times_;
};

}  // namespace libtrain::detail
