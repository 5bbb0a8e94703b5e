#pragma once

#include <string>
#include <vector>

#include <libtrain/comm/communicator.hpp>

namespace libtrain::detail {

/// What ranks must have in common, and how to speak of it where they do not.
struct Agreement {
  std::string subject = {};  ///< "The model"
  std::string unit = {};     ///< what a line stands for, in the plural: "tensors"
  std::string advice = {};   ///< "Build the same model on every rank."
};

/// Throws UsageError on every rank, all with the same text, unless all ranks gave the same lines. The text names the
/// first difference: the line on rank 0, the line elsewhere, and on which ranks. All ranks must call it.
void require_agreement(const Agreement& agreement, const std::vector<std::string>& lines, Communicator& communicator);

/// The text for the first difference between rank 0's lines and the others'; empty where all are equal.
std::string describe_difference(const Agreement& agreement, const std::vector<std::vector<std::string>>& all);

}  // namespace libtrain::detail
