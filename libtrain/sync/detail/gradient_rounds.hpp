#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/sync/detail/bucket_planner.hpp>
#include <libtrain/sync/detail/buffer_exchange.hpp>
#include <libtrain/sync/detail/gradient_buckets.hpp>
#include <libtrain/sync/detail/module_parameters.hpp>
#include <libtrain/sync/detail/round_status.hpp>
#include <libtrain/sync/detail/sample_weights.hpp>
#include <libtrain/sync/detail/value_checks.hpp>
#include <libtrain/sync/detail/waiting_time.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/sync/sync_batch_norm.hpp>

namespace libtrain::detail {

/// The rounds of a GradientSynchronizer, from the hooks that autograd calls to the end of wait(). gradient_rounds.cpp
/// has the methods in the order in which a gradient passes through them; gradient_rounds_calls.cpp has the other calls.
///
///     idle -- open() --> accumulating -- mark_gradient_ready() --> filling -- finish_round() --> finishing
///     finishing -- end_round() --> idle
///
/// A round opens before its first gradient, may contain backward() passes under no_sync(), and has one backward() whose
/// gradients are reduced. Invariants, under the mutex:
/// - buckets are started in the order of the plan, each once in a round, and not written to afterwards;
/// - a gradient that has arrived or accumulated is in its place (if there are buckets);
/// - the plan changes only while a round has no gradient, and by the same rules on every rank;
/// - once an error has left a round under way (a lost peer), every later call throws that error; but a round whose
///   recording into a graph has ended without wait() is over at the next call, and its gradients are undefined.
///
/// A parameter gets one gradient in a round, unless options allow more or none: otherwise a UsageError names it. A
/// sparse gradient, or one that itself requires a gradient, is always a UsageError. The place of a gradient keeps its
/// value until the next round. It is not an autograd view: Optimizer::zero_grad(false) detaches gradients in place,
/// which views refuse. Hooks hold a weak reference: those of a graph that outlives the synchronizer do nothing.
///
/// A group of one rank that sends nothing has no buckets: gradients stay where autograd leaves them.
class GradientRounds : public std::enable_shared_from_this<GradientRounds> {
 public:
  /// Throws UsageError for parameters and plans that cannot be synchronised.
  GradientRounds(torch::nn::Module& module, Communicator& communicator, SynchronizerOptions options);

  /// Adds hooks to trainable parameters, and removes those of frozen ones. Throws UsageError for a parameter that
  /// another synchronizer has. Not while a hook runs.
  void hook();

  /// Removes all hooks. A hook that is running on another thread does nothing more.
  void close();

  /// Distinguishes this object from the process's other synchronizers, equally on all ranks; "" for the first.
  void set_owner(const std::string& owner);

  /// The settings that must be equal on all ranks, apart from the module.
  std::vector<std::string> describe() const { return planner_.describe(plan_); }

  // The implementation of GradientSynchronizer's methods of these names.
  bool wait();
  void zero_grad();
  void enter_no_sync();
  void leave_no_sync();
  std::int64_t set_samples(std::int64_t samples);
  bool join();
  void find_unused(const std::vector<at::Tensor>& outputs);
  void declare_unused(const std::vector<std::string>& names);
  void broadcast_buffers();
  BucketLimits tune();
  SynchronizationStatistics statistics();
  const std::vector<Bucket>& plan() const { return plan_; }
  const ModuleParameters& parameters() const { return parameters_; }
  bool skipped() const { return has_skipped_; }
  void request_stop();
  bool stop_requested() const { return stop_requested_; }
  std::int64_t rounds() const { return rounds_; }

 private:
  enum class Phase { idle, accumulating, filling, finishing, closed };

  /// The state of the current round.
  struct Round {
    Phase phase = Phase::idle;
    SampleWeight weight = {};
    bool is_joining = false;   // this rank contributes no gradients
    bool is_recorded = false;  // into a graph, which later replays it
    RoundReport report = {};
    std::vector<std::size_t> arrivals = {};
    Stopwatch since_first_gradient = {};
  };

  // A gradient arrives, on a thread that runs backward().
  void open();
  void require_recordable() const;
  void expect_gradient(std::size_t index);
  void mark_gradient_ready(std::size_t index, const at::Tensor& incoming);
  void adopt_or_keep(ModuleParameter& parameter, const at::Tensor& incoming);
  bool starts_in_backward() const;
  void start_next_bucket();
  void gather(GradientBucket& bucket, const std::vector<std::size_t>& members);
  void fill_place(ModuleParameter& parameter);
  bool report_gradient(std::size_t index);

  // The round ends, in wait().
  void check_passes();
  bool finish_round();
  void report_unplanned();
  void wait_for_buckets();
  void settle_round();
  void agree_on_outcome();
  void require_equal_replicas();
  bool follow_trainable_set();
  void average_unplanned();
  bool look_for_non_finite();
  std::string describe_overflow();
  const at::Tensor* overflowing_average_of(std::size_t index);
  void settle_gradients();
  const at::Tensor* average_of(std::size_t index) const;
  void warn();
  void end_round();
  void forget_gradients();

  void exchange_samples(std::int64_t samples, std::string problem);
  void set_weight(const SampleWeight& weight);

  // The plan.
  void use_plan(const std::vector<Bucket>& plan);
  void use_next_plan();
  const at::Tensor& place_of(const ModuleParameter& parameter);

  // Errors.
  [[nodiscard]] std::unique_lock<std::mutex> enter();
  void keep_error();
  bool is_under_way() const { return round_.phase == Phase::filling || round_.phase == Phase::finishing; }
  void require_unused_allowed(const char* caller) const;

  /// Ends the round with this rank's `failure`, on all ranks.
  void fail_in_backward(const std::string& failure);
  [[noreturn]] void fail(const std::string& failure);
  void check_steps();

  torch::nn::Module& module_;
  Communicator& communicator_;
  const SynchronizerOptions options_;
  const std::shared_ptr<WireFormat> format_;  // null: a group of one that sends nothing
  const WireFormatUse use_of_format_;
  const at::Device device_;  // of the trainable parameters
  ModuleParameters parameters_;
  const std::unique_ptr<ValueChecks> checks_;
  BucketPlanner planner_;
  RoundStatus status_;
  BufferExchange buffers_;
  SampleWeights weights_;
  std::vector<std::shared_ptr<SyncBatchNormImpl>> batch_norms_;  // they sum gradients over ranks themselves

  mutable std::mutex mutex_;  // hooks may run on several threads
  std::vector<Bucket> plan_;  // members are indices into the parameters
  std::optional<std::vector<Bucket>> next_plan_;
  std::optional<GradientBuckets> buckets_;  // none in a group of one that sends nothing
  std::vector<std::size_t> missing_;        // gradients, by bucket
  std::size_t started_ = 0;                 // buckets
  std::string owner_;
  Round round_;
  std::exception_ptr error_;  // has left a round under way
  int no_sync_guards_ = 0;
  bool has_skipped_ = false;     // the last round
  bool wants_stop_ = false;      // this rank
  bool stop_requested_ = false;  // a rank, in a round that has ended
  bool has_warned_of_nan_ = false;
  bool has_warned_of_zeros_ = false;
  std::int64_t rounds_ = 0;
  WaitingTime waiting_;
};

}  // namespace libtrain::detail
