#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <libtrain/data/sample_origin.hpp>

#include <tools/inspect/inspect_options.hpp>

namespace libtrain::inspect {

/// Members stay in the order in which they are first set.
using Json = nlohmann::ordered_json;

/// "min", "median" and "max" of whole numbers; null if there are none. The median of an even count is the mean of the
/// two in the middle.
Json spread(const std::vector<double>& values);

/// A sample that training cannot use: an image, or a row of a text file.
struct BadSample {
  std::uint64_t index = 0;
  data::SampleOrigin origin = {};
  std::string reason = {};
};

struct Report {
  Json facts = Json::object();
  Check check = Check::none;                ///< the check that was made
  std::vector<BadSample> bad_samples = {};  ///< in the order of their indices
  std::string refusal = {};                 ///< the error of a loader for the whole set; empty if there is none
};

/// The facts as text, one per line, nested facts indented, lists cut after ten entries; then the refusal, a line for
/// each bad sample, and their number if samples were checked. Control characters become '?'.
std::string to_text(const Report& report);

/// One JSON object on one line: the facts, "refusal" if there is one, "check", and "bad_samples", which is null if
/// samples were not checked. Bytes that are not UTF-8 become U+FFFD.
std::string to_json_line(const Report& report);

}  // namespace libtrain::inspect
