#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <libtrain/data/sample_origin.hpp>

namespace libtrain::data {

/// Lines that identify a data set: number of samples, classes, places of the samples in their storage. Equal for copies
/// of the same data in other places.
using DatasetIdentity = std::vector<std::string>;

namespace detail {

/// One line for each of about a thousand runs of consecutive samples: the first sample, and a checksum of the paths,
/// offsets and lengths of all samples of the run (of evenly spread ones for more than two million samples). Only the
/// part of a path after `root` counts or, if the path does not start with `root`, the last folder and the file name.
DatasetIdentity describe_samples(std::uint64_t size, const std::string& root,
                                 const std::function<SampleOrigin(std::uint64_t index)>& origin);

/// A digest of all lines; never 0.
std::uint64_t digest_of(const DatasetIdentity& identity);

/// A few of the lines, for messages.
std::string summary_of(const DatasetIdentity& identity);

}  // namespace detail

}  // namespace libtrain::data
