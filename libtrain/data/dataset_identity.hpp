#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <libtrain/data/sample_origin.hpp>

namespace libtrain::data {

/// What tells a data set from others, a line each: how many samples, their classes, where they are stored. Equal for
/// copies of the same data in other places.
using DatasetIdentity = std::vector<std::string>;

namespace detail {

/// A line for each of about a thousand runs of consecutive samples: its first one, and a checksum of the paths, offsets
/// and lengths of all; of more than two million samples, of some that are spread evenly. Of a path what comes after
/// `root` counts, or where it does not begin with that, the last folder and the file's name.
DatasetIdentity describe_samples(std::uint64_t size, const std::string& root,
                                 const std::function<SampleOrigin(std::uint64_t index)>& origin);

/// One number for all lines; never 0.
std::uint64_t digest_of(const DatasetIdentity& identity);

/// A few of the lines, for messages.
std::string summary_of(const DatasetIdentity& identity);

}  // namespace detail

}  // namespace libtrain::data
