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

/// A sample that training could not use: an image, or a row of a text file.
struct BadSample {
  std::uint64_t index = 0;
  data::SampleOrigin origin = {};
  std::string reason = {};
};

/// What was found.
struct Report {
  Json facts = Json::object();
  Check check = Check::none;                ///< what was asked of the samples
  std::vector<BadSample> bad_samples = {};  ///< in the order of their indices
  std::string refusal = {};                 ///< why a loader takes none of the set; empty where it does
};

/// Facts for people, one a line and further ones below what they belong to, lists cut after ten; then the refusal, a
/// line for each bad sample, and how many there are where samples were checked. Control characters become '?'.
std::string to_text(const Report& report);

/// One JSON object on one line: the facts, "refusal" where there is one, "check", and "bad_samples", which is null
/// where they were not checked. What is not UTF-8 becomes U+FFFD.
std::string to_json_line(const Report& report);

}  // namespace libtrain::inspect
