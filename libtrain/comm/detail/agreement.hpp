#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/comm/communicator.hpp>

namespace libtrain::detail {

/// What `body` throws; null where it returns.
template <typename Body>
std::exception_ptr failure_of(const Body& body) {
  try {
    body();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

/// Throws the same error on all ranks where any of them has a `failure`, so that no rank waits for one that has given
/// up. All ranks must call it, each with its own failure or null. The error is that of the first such rank, of the same
/// type: "Setting up NCCL failed on rank 3: this process sees no GPU." Its text alone where all ranks have the same.
/// What is not a libtrain::Error becomes an EnvironmentError, and a UsageError where LibTorch throws it.
void throw_together(Communicator& communicator, std::string_view step, const std::exception_ptr& failure,
                    const CallOptions& options = {});

/// Calls `body` on every rank, and throws together what it throws.
template <typename Body>
void run_together(Communicator& communicator, std::string_view step, const Body& body,
                  const CallOptions& options = {}) {
  throw_together(communicator, step, failure_of(body), options);
}

/// What ranks must have in common, and how to speak of it where they do not.
struct Agreement {
  std::string subject = {};  ///< "The model"
  std::string unit = {};     ///< what a line stands for, in the plural: "tensors"
  std::string advice = {};   ///< "Build the same model on every rank."
};

/// Throws UsageError on every rank, all with the same text, unless all ranks give the same lines. The text names the
/// first difference: the line on rank 0, the line elsewhere, and on which ranks. All ranks must call it.
void require_agreement(const Agreement& agreement, const std::vector<std::string>& lines, Communicator& communicator);

}  // namespace libtrain::detail
