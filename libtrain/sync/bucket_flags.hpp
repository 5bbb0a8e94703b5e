#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace libtrain::detail {

/// What the ranks tell each other beside a bucket's gradients, at no message of its own: numbers that are averaged with
/// them. Before the reduction a number is 0 or 1 and this rank's; afterwards it is above 0 where any rank's was.
class BucketFlags {
 public:
  explicit BucketFlags(std::size_t members) : members_(members), values_(2 * members + 3 + 2 * kReplicaBits) {}

  /// How many elements of the bucket's memory they take.
  std::int64_t size() const { return static_cast<std::int64_t>(values_.size()); }

  float& used(std::size_t member) { return values_[member]; }                ///< got a gradient
  float& missing(std::size_t member) { return values_[members_ + member]; }  ///< should have got one and did not
  float& failed() { return values_[2 * members_]; }                          ///< the rank has something to report
  float& non_finite() { return values_[2 * members_ + 1]; }                  ///< a gradient has NaN or infinity
  float& retrained() { return values_[2 * members_ + 2]; }                   ///< parameters were frozen or unfrozen

  /// A few bits of a digest of the bucket's parameters: for each bit a number that says 0 and one that says 1. Ranks
  /// whose digests differ have an even chance to say both.
  void set_replica(std::uint64_t digest);
  bool replicas_differ() const;

  void clear() { values_.assign(values_.size(), 0); }
  bool any_missing() const;

  /// To and from the bucket's own memory, of any floating dtype.
  void write_to(const at::Tensor& memory) const;
  void read_from(const at::Tensor& memory);

 private:
  static constexpr std::size_t kReplicaBits = 4;

  std::size_t members_;
  std::vector<float> values_;
};

}  // namespace libtrain::detail
