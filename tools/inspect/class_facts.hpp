#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <tools/inspect/report.hpp>

namespace libtrain::inspect {

/// The number of occurrences of each label. Labels are 0 or more: the readers of samples reject others.
using LabelCounts = std::map<std::int64_t, std::uint64_t>;

/// An object: "count", the number of labels that occur; the "smallest" and the "largest" class, and
/// "largest_over_smallest"; "missing", the labels from 0 to the largest, or to the last with a name, that do not occur:
/// their count and the first five; "all" classes. A class is an object of "label", "name" if `names` has one, and
/// `unit`, its count.
Json class_facts(const LabelCounts& counts, const std::vector<std::string>& names, const std::string& unit);

}  // namespace libtrain::inspect
