#pragma once

#include <cstddef>
#include <cstdint>
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
#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/sync/sync_batch_norm.hpp>

namespace libtrain::detail {

/// The rounds of a GradientSynchronizer, from the hooks that autograd calls to the end of wait(). Read its methods in
/// the order in which they are declared: that is the way of a gradient.
///
///     idle -- open() --> accumulating -- mark_gradient_ready() --> filling -- finish() --> finishing -- end() --> idle
///
/// A round opens before its first gradient, may hold backward() passes under no_sync(), and has one that is reduced.
/// Invariants, under the mutex:
/// - buckets are started in the order of the plan, each once in a round; nobody writes to those before `started_`;
/// - a gradient that has arrived or accumulated lies in its place (where there are buckets);
/// - the plan changes only while no gradient of a round has come, and by the same rules on every rank.
///
/// A parameter gets one gradient a round, unless options say otherwise: a second one or none at all is a UsageError
/// that names it, and so is, always, a sparse one or one that itself requires a gradient. The place of a gradient keeps
/// its value until the next round. It is no autograd view: Optimizer::zero_grad(false) detaches gradients in place,
/// which views refuse. Hooks hold a weak reference: those of a graph that outlives the synchronizer do nothing.
///
/// A group of one rank that sends nothing has no buckets: gradients stay where autograd leaves them.
class GradientRounds : public std::enable_shared_from_this<GradientRounds> {
 public:
  /// Throws UsageError for parameters and plans that cannot be synchronised.
  GradientRounds(torch::nn::Module& module, Communicator& communicator, SynchronizerOptions options);

  /// Puts hooks onto the parameters. Throws UsageError for one that another synchronizer has.
  void hook();

  /// Takes them away; hooks that other threads are in do nothing.
  void close();

  /// What distinguishes this one from the process's other synchronizers, the same on all ranks; "" for the first.
  void set_owner(const std::string& owner);

  /// What ranks must have in common beside the module.
  std::vector<std::string> describe() const;

  // What GradientSynchronizer's methods of these names do.
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
  SynchronizationStatistics statistics() const;
  const std::vector<Bucket>& plan() const { return plan_; }
  const ModuleParameters& parameters() const { return parameters_; }
  bool skipped() const { return has_skipped_; }
  std::int64_t rounds() const { return rounds_; }

 private:
  enum class Phase { idle, accumulating, filling, finishing, closed };

  /// What is known of the present round, and forgotten at its end.
  struct Round {
    Phase phase = Phase::idle;
    SampleWeight weight = {};
    bool is_joining = false;  // this rank takes part with nothing
    RoundReport report = {};
    std::vector<std::size_t> arrivals = {};
    Stopwatch since_first_gradient = {};
    enum class Values {
      none,
      zeros,
      some
    } values = Values::none;  // in this rank's gradients, as far as they were seen
  };

  void exchange_samples(std::int64_t samples, std::string problem);

  // A gradient comes, on a thread that runs backward().
  void open();
  void expect_gradient(std::size_t index);
  void mark_gradient_ready(std::size_t index, const at::Tensor& incoming);
  void adopt_or_keep(ModuleParameter& parameter, const at::Tensor& incoming);
  void start_next_bucket();
  void keep_in_place(ModuleParameter& parameter);
  void note(std::size_t index);

  // The round ends, in wait().
  void check_passes();
  bool finish();
  void report_unplanned();
  void wait_for_buckets();
  void agree_on_outcome();
  void require_equal_replicas();
  bool follow_trainable_set();
  void average_unplanned();
  bool look_for_non_finite();
  const ModuleParameter* first_overflowed();
  void settle_gradients();
  void warn_of_nan();
  void warn_of_zeros();
  void end();
  void forget_gradients();

  // The plan.
  void use_plan(const std::vector<Bucket>& plan);
  void use_next_plan();
  void count_missing();
  const at::Tensor& place_of(const ModuleParameter& parameter);

  // Mistakes.
  bool is_expected(const ModuleParameter& parameter) const;
  bool is_under_way() const { return round_.phase == Phase::filling || round_.phase == Phase::finishing; }
  void weigh(const SampleWeight& weight);
  void require_unused_allowed(const char* caller) const;

  /// Ends the round with this rank's `failure`, on all ranks.
  [[noreturn]] void fail(const std::string& failure);
  [[noreturn]] void fail_stepped(const ModuleParameter& parameter);

  torch::nn::Module& module_;
  Communicator& communicator_;
  const SynchronizerOptions options_;
  const std::shared_ptr<WireFormat> format_;  // null: a group of one that sends nothing
  ModuleParameters parameters_;
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
  int no_sync_guards_ = 0;
  bool has_skipped_ = false;  // the last round
  bool has_warned_of_nan_ = false;
  bool has_warned_of_zeros_ = false;
  std::int64_t rounds_ = 0;
  double seconds_waiting_ = 0;
};

}  // namespace libtrain::detail
