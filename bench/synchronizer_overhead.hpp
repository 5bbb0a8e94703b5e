#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace libtrain::bench {

/// Where gradients live between steps.
enum class Gradients {
  unbucketed,  ///< a group of one that sends nothing: gradients stay where autograd leaves them
  kept,        ///< in their buckets, and never cleared: backward() adds to them, nothing is copied
  cleared,     ///< in their buckets, cleared before each step: each new one is copied to its place
};

/// "unbucketed", "kept" or "cleared".
std::string_view to_string(Gradients gradients);

struct OverheadCase {
  std::int64_t parameters = 1;  ///< of one float32 element each
  std::int64_t buckets = 1;     ///< to divide them among
  Gradients gradients = Gradients::cleared;
};

/// The seconds of a step with a synchronizer and without.
struct Overhead {
  std::size_t buckets = 0;  ///< as planned: a little fewer where they do not divide the parameters evenly
  double local_median_s = 0;
  double local_minimum_s = 0;
  double synchronized_median_s = 0;
  double synchronized_minimum_s = 0;

  double median_s() const { return synchronized_median_s - local_median_s; }
  double minimum_s() const { return synchronized_minimum_s - local_minimum_s; }
};

/// Times, in this process alone, steps that are nothing but zero_grad (for gradients that are not kept), backward()
/// from the parameters themselves, and wait(). A backward() of this kind does nothing but accumulate, and the wire
/// format sends nothing, so what a synchronizer adds is its own bookkeeping: hooks, copies, flags, plans. Steps with
/// and without take turns.
Overhead measure_overhead(const OverheadCase& measured, std::int64_t iterations, std::int64_t warmup);

}  // namespace libtrain::bench
