#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace libtrain::detail {

/// What went wrong in a round on one rank, as it tells the others.
struct RoundReport {
  std::string failure = {};                  ///< a whole sentence, or nothing
  std::vector<std::string> missing = {};     ///< parameters that should have got a gradient
  std::vector<std::string> non_finite = {};  ///< parameters whose gradient has NaN or infinity

  std::string to_bytes() const;
  static RoundReport from_bytes(const std::string& bytes);
};

/// One text for all ranks; element r of `reports` is rank r's. Empty where no rank has anything of the kind to report.
std::string describe_failures(const std::vector<RoundReport>& reports);
std::string describe_missing(const std::vector<RoundReport>& reports, std::size_t parameters);
std::string describe_non_finite(const std::vector<RoundReport>& reports, std::int64_t round);

}  // namespace libtrain::detail
