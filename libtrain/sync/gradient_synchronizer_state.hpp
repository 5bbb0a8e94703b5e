#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <libtrain/base/clock.hpp>
#include <libtrain/sync/bucket_reducer.hpp>
#include <libtrain/sync/buffer_exchange.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/sync/module_parameters.hpp>
#include <libtrain/sync/round_report.hpp>
#include <libtrain/sync/sample_weights.hpp>
#include <libtrain/sync/sync_batch_norm.hpp>

namespace libtrain {

/// The rounds of a synchronizer. A window is what comes between two wait(): it opens before the first gradient, may
/// hold backward() passes under no_sync(), and has one that is reduced, the round itself.
///
/// Invariants, under `mutex`:
/// - buckets are started in plan order, each once in a round; those before reducer.started() must not be written to;
/// - a gradient that has arrived or accumulated lives in its place (where the reducer has memory);
/// - the plan changes only while no gradient of a window has come, and by the same rules on every rank; so do places,
///   but for those in blocks (see GradientBucket), which are taken anew in each window.
struct GradientSynchronizer::State {
  State(torch::nn::Module& module, Communicator& communicator, SynchronizerOptions options);

  // The plan (gradient_synchronizer_plan.cpp).
  void check_trainable();
  void check_given_plan() const;
  void require_same_plan() const;
  std::vector<Bucket> plan_of(const std::vector<std::size_t>& order) const;
  std::vector<Bucket> given_plan() const;
  std::vector<std::size_t> unnamed_in_given_plan() const;
  std::vector<Bucket> buckets_of(const std::vector<std::size_t>& order) const;
  void adopt(const std::vector<Bucket>& plan);
  void adopt_next_plan();
  void replan_by_arrival();
  bool follow_retraining();
  void average_unplanned();
  void look_at_unplanned(detail::ModuleParameter& parameter);
  void take_unplanned(const detail::ModuleParameter& parameter, const at::Tensor& place, detail::BucketFlags& flags,
                      std::size_t member);
  void add_hooks();
  BucketLimits tune();

  // Gradients as they come, on the threads that run backward().
  void before_gradient(std::size_t index);
  void on_gradient(std::size_t index, const at::Tensor& incoming);
  void open_window();
  void adopt_place(const detail::ModuleParameter& parameter, const at::Tensor& incoming);
  void keep_in_place(detail::ModuleParameter& parameter);
  std::string problem_of(const detail::ModuleParameter& parameter, const at::Tensor& place) const;
  void move_to_place(detail::ModuleParameter& parameter);
  void start_full_buckets();
  void start_bucket();
  void check_finite(std::size_t bucket);

  // The end of a round.
  bool wait();
  bool finish_round();
  void check_window();
  void check_passes();
  void agree_on_outcome(detail::BucketReducer& reduced);
  void require_equal_replicas();
  bool look_for_non_finite();
  void warn_of_nan();
  void warn_of_zeros();
  void settle_gradients();
  void exchange_buffers();
  void reset_round();
  void count_missing();
  void weigh_round(const detail::SampleWeight& the_weight);
  void require_unused_allowed(const char* caller) const;
  bool is_expected(const detail::ModuleParameter& parameter) const;

  /// For a step with gradients that are this rank's own.
  [[noreturn]] void fail_stepped(const detail::ModuleParameter& parameter);

  /// Ends the round with this rank's `failure`: on all ranks where buckets are left to carry it, else here alone. What
  /// is `refused` then leaves the round as it is, what has spoiled it ends it.
  enum class Failure { refused, spoiled };
  [[noreturn]] void fail_round(const std::string& failure, Failure kind = Failure::spoiled);

  torch::nn::Module& module;
  Communicator& communicator;
  const SynchronizerOptions options;
  BucketLimits limits;
  detail::ModuleParameters parameters;
  detail::BucketReducer reducer;
  detail::BufferExchange buffers;
  detail::SampleWeights weights;
  std::vector<std::shared_ptr<SyncBatchNormImpl>> batch_norms;  // they sum gradients over ranks themselves
  std::weak_ptr<State> self;

  std::mutex mutex;          // hooks may run on several threads
  std::vector<Bucket> plan;  // members are indices into `parameters`
  std::optional<std::vector<Bucket>> next_plan;
  std::vector<std::size_t> missing;  // gradients, by bucket
  std::vector<std::size_t> arrivals;
  detail::SampleWeight weight;
  detail::RoundReport report;
  Stopwatch since_first_gradient;
  int no_sync_guards = 0;
  bool has_ended = false;  // hooks that other threads are in may come after
  bool in_window = false;
  bool in_round = false;
  bool joining = false;  // this rank takes part in the round with nothing
  bool has_retrained = false;
  bool has_replanned = false;
  bool unplanned_non_finite = false;
  bool has_skipped = false;      // the last round
  bool has_zeros = false;        // of this rank's gradients of the round the first ones are zero
  bool has_contributed = false;  // one is not
  bool has_warned_of_nan = false;
  bool has_warned_of_zeros = false;
  std::int64_t rounds = 0;
  double seconds_waiting = 0;
};

}  // namespace libtrain
