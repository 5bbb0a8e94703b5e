#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/comm/communicator.hpp>

namespace libtrain::detail {

/// The flags of a round that ranks exchange: one small message after its buckets. Before exchange() a flag is this
/// rank's, afterwards it is set if any rank's was.
///
/// A flag is one byte, of which the ranks take the maximum.
class RoundStatus {
 public:
  /// With a flag for each of so many parameters. The same number on all ranks.
  RoundStatus(std::size_t parameters, Communicator& communicator);

  /// As GradientBuckets::set_owner().
  void set_owner(const std::string& owner);

  void clear();

  bool has_failed() const { return flag(kFailed); }  ///< a rank has a RoundReport to read
  void set_failed() { set(kFailed); }
  bool is_non_finite() const { return flag(kNonFinite); }  ///< a gradient has NaN or infinity
  void set_non_finite() { set(kNonFinite); }
  bool trainable_set_changed() const { return flag(kTrainableSet); }  ///< parameters were frozen or unfrozen
  void set_trainable_set_changed() { set(kTrainableSet); }
  bool is_stop_requested() const { return flag(kStop); }
  void set_stop_requested() { set(kStop); }
  /// Whether the parameter's gradient is defined on a rank that has not joined.
  bool has_gradient(std::size_t parameter) const { return flag(kFirstParameter + parameter); }
  void set_has_gradient(std::size_t parameter) { set(kFirstParameter + parameter); }

  /// Sets a digest of this rank's replica; returns whether ranks set different ones.
  void set_replica(std::uint64_t digest);
  bool replicas_differ() const;

  /// Queues the message; wait() returns when all ranks' flags have arrived. All ranks must call both.
  void exchange();
  void wait();

 private:
  static constexpr std::size_t kFailed = 0;
  static constexpr std::size_t kNonFinite = 1;
  static constexpr std::size_t kTrainableSet = 2;
  static constexpr std::size_t kStop = 3;
  static constexpr std::size_t kDigest = 4;  // the digest's bytes, then their complements
  static constexpr std::size_t kFirstParameter = kDigest + 2 * sizeof(std::uint64_t);

  bool flag(std::size_t index) const { return bytes_[index] != 0; }
  void set(std::size_t index) { bytes_[index] = 1; }

  Communicator& communicator_;
  std::shared_ptr<const std::string> label_;
  at::Tensor memory_;  // uint8, on the host, so that this message never makes it wait for a device
  std::uint8_t* bytes_ = nullptr;
  Work work_;
};

/// The problems of one rank in a round, which ranks exchange if the status shows that there are any.
struct RoundReport {
  std::string failure = {};                  ///< whole sentences, or empty
  std::vector<std::string> missing = {};     ///< parameters without the gradient that they should have
  std::vector<std::string> non_finite = {};  ///< parameters whose gradient has NaN or infinity

  std::string to_bytes() const;
  static RoundReport from_bytes(const std::string& bytes);
};

/// Element r is rank r's. All ranks must call it.
std::vector<RoundReport> gather_reports(const RoundReport& mine, Communicator& communicator);

/// One text for all ranks; element r of `reports` is rank r's. Empty if no rank has such a problem.
std::string describe_failures(const std::vector<RoundReport>& reports);
std::string describe_missing(const std::vector<RoundReport>& reports, std::size_t parameters);
std::string describe_non_finite(const std::vector<RoundReport>& reports, std::int64_t round);

}  // namespace libtrain::detail
