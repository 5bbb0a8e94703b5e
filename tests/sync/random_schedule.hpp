#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <numeric>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

#include <libtrain/sync/gradient_synchronizer.hpp>

namespace libtrain::test {

/// What a random schedule may have in it, beside models, buckets and orders.
struct Features {
  bool accumulation = false;
  bool unused = false;
  bool uneven = false;
  bool non_finite = false;
};

enum class Zeroing { of_synchronizer, to_none, to_zero };

/// A parameter's gradient after a round.
struct Expectation {
  bool defined = false;
  bool certain = true;  ///< not where only ranks without samples have used it: zero, or undefined
  double value = 0;
};

/// Everything that happens to a group of ranks: a pure function of the seed, so that each rank knows what all others
/// do.
class Schedule {
 public:
  Schedule(std::uint64_t seed, Features features, int world_size)
      : seed_(seed), features_(features), world_size_(world_size) {}

  int parameters() const { return 2 + static_cast<int>(draw(5, "parameters")); }
  std::int64_t elements(int parameter) const {
    constexpr std::int64_t kSizes[] = {0, 1, 2, 3, 7, 16, 33, 64, 129, 300};
    return kSizes[draw(std::size(kSizes), "elements", parameter)];
  }
  at::ScalarType dtype(int parameter) const { return draw(3, "dtype", parameter) == 0 ? at::kDouble : at::kFloat; }
  Overlap overlap() const { return draw(3, "overlap") == 0 ? Overlap::none : Overlap::backward; }
  Zeroing zeroing() const { return static_cast<Zeroing>(draw(3, "zeroing")); }

  SynchronizerOptions options() const {
    return {.buckets = {.bucket_bytes = std::size_t{16} << draw(8, "bucket_bytes"),
                        .first_bucket_bytes = std::size_t{16} << draw(6, "first_bucket_bytes"),
                        .alone_bytes = std::size_t{1} << draw(16, "alone_bytes")},
            .replan = draw(4, "replan") != 0,
            .unused = features_.unused ? UnusedParameters::allowed : UnusedParameters::refused,
            .non_finite = features_.non_finite ? NonFinite::skipped : NonFinite::unchecked,
            .overlap = overlap()};
  }

  int passes(int rank, int round) const {
    return features_.accumulation ? 1 + static_cast<int>(draw(3, "passes", rank, round)) : 1;
  }

  /// Whether the passes before the last run under no_sync(): they may do without where nothing overlaps.
  bool guarded(int rank, int round) const {
    return overlap() == Overlap::backward || draw(2, "guarded", rank, round) == 0;
  }

  /// The order in which a rank's terms join the loss.
  std::vector<int> order(int rank, int round, int pass) const {
    std::vector<int> result(static_cast<std::size_t>(parameters()));
    std::iota(result.begin(), result.end(), 0);
    const auto key = [&](int parameter) { return draw(1u << 30, "order", rank, round, pass, parameter); };
    std::sort(result.begin(), result.end(), [&](int left, int right) { return key(left) < key(right); });
    return result;
  }

  std::int64_t delay_us(int rank, int round, int pass, int parameter) const {
    const auto drawn = draw(400, "delay", rank, round, pass, parameter);
    return drawn < 200 ? static_cast<std::int64_t>(drawn) : 0;
  }

  /// Every pass uses at least one parameter: backward() needs something to start from.
  bool used(int rank, int round, int pass, int parameter) const {
    if (!features_.unused || draw(3, "used", rank, round, pass, parameter) != 0) return true;
    const auto count = static_cast<std::uint64_t>(parameters());
    return draw(count, "used_for_certain", rank, round, pass) == static_cast<std::uint64_t>(parameter);
  }

  bool finds_unused(int rank, int round) const {
    return features_.unused && overlap() == Overlap::backward && draw(2, "finding", rank, round) == 0;
  }

  bool weighted(int round) const { return features_.uneven && draw(4, "weighted", round) != 0; }

  /// Whether a rank tells its samples before the passes under no_sync(), and not after.
  bool samples_first(int rank, int round) const { return draw(2, "samples_first", rank, round) == 0; }

  std::int64_t samples(int rank, int round) const {
    const auto ranks = static_cast<std::uint64_t>(world_size_);
    const bool has_some = draw(ranks, "samples_for_certain", round) == static_cast<std::uint64_t>(rank);
    return static_cast<std::int64_t>(draw(5, "samples", rank, round)) + (has_some ? 1 : 0);
  }

  std::int64_t samples_of_all(int round) const {
    std::int64_t total = 0;
    for (int rank = 0; rank < world_size_; ++rank) total += samples(rank, round);
    return total;
  }

  /// How much a rank's gradients count in the sum over all ranks.
  double weight(int rank, int round) const {
    if (!weighted(round)) return 1.0 / world_size_;
    return static_cast<double>(samples(rank, round)) / static_cast<double>(samples_of_all(round));
  }

  /// The gradient of all elements of a parameter in one pass, where it is used: a small whole number, or NaN.
  double coefficient(int rank, int round, int pass, int parameter) const {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    if (weight(rank, round) == 0 && draw(2, "empty_is_nan", rank, round) == 0) return kNan;
    if (is_poisoned(rank, round, pass, parameter)) return kNan;
    return static_cast<double>(draw(17, "coefficient", rank, round, pass, parameter)) - 8;
  }

  bool skipped(int round) const {
    for (int rank = 0; rank < world_size_; ++rank) {
      for (int parameter = 0; parameter < parameters(); ++parameter) {
        if (is_poisoned(rank, round, 0, parameter)) return true;
      }
    }
    return false;
  }

  Expectation expectation(int round, int parameter) const {
    Expectation result{.defined = false, .certain = false, .value = 0};
    for (int rank = 0; rank < world_size_; ++rank) {
      for (int pass = 0; pass < passes(rank, round); ++pass) {
        if (!used(rank, round, pass, parameter)) continue;
        result.defined = true;
        if (weight(rank, round) == 0) continue;
        result.certain = true;
        result.value += weight(rank, round) * coefficient(rank, round, pass, parameter);
      }
    }
    if (!result.defined) result.certain = true;
    return result;
  }

 private:
  /// A number below `below` that depends on nothing but the seed and the arguments.
  template <typename... Places>
  std::uint64_t draw(std::uint64_t below, std::string_view what, Places... places) const {
    auto hash = mixed(0, seed_);
    for (const char letter : what) hash = mixed(hash, static_cast<unsigned char>(letter));
    ((hash = mixed(hash, static_cast<std::uint64_t>(places))), ...);
    return hash % below;
  }

  // The finaliser of SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
  static std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
    hash = (hash ^ value) + 0x9E3779B97F4A7C15ull;
    hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9ull;
    hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBull;
    return hash ^ (hash >> 31);
  }

  /// NaN on purpose, where it counts: in one parameter with elements, on one rank with samples, in its first pass.
  bool is_poisoned(int rank, int round, int pass, int parameter) const {
    if (!features_.non_finite || pass != 0 || draw(3, "poisoned", round) != 0) return false;
    const auto ranks = static_cast<std::uint64_t>(world_size_);
    const auto count = static_cast<std::uint64_t>(parameters());
    return draw(ranks, "poisoned_rank", round) == static_cast<std::uint64_t>(rank) &&
           draw(count, "poisoned_parameter", round) == static_cast<std::uint64_t>(parameter) &&
           elements(parameter) > 0 && weight(rank, round) > 0 && used(rank, round, pass, parameter);
  }

  std::uint64_t seed_;
  Features features_;
  int world_size_;
};

}  // namespace libtrain::test
