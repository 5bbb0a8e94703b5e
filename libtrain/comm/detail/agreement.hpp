#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/comm/communicator.hpp>

namespace libtrain::detail {

/// The exception that `body` throws; null if it returns.
template <typename Body>
std::exception_ptr failure_of(const Body& body) {
  try {
    body();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

/// Throws the same error on all ranks if any of them has a `failure`, so that no rank waits for one that has given up.
/// All ranks must call it, each with its own failure or null. The error is that of the first failed rank, with the same
/// type: "Setting up NCCL failed on rank 3: this process sees no GPU." If all ranks have the same error, it is thrown
/// without this prefix. An exception of LibTorch becomes a UsageError, except failures of a GPU, which become an
/// EnvironmentError, as any other foreign exception.
void throw_together(Communicator& communicator, std::string_view step, const std::exception_ptr& failure,
                    const CallOptions& options = {});

/// Calls `body` on every rank; if it throws on any rank, throws the same error on all ranks.
template <typename Body>
void run_together(Communicator& communicator, std::string_view step, const Body& body,
                  const CallOptions& options = {}) {
  throw_together(communicator, step, failure_of(body), options);
}

/// Texts for the error message if ranks differ in something that must be equal.
struct Agreement {
  std::string subject = {};  ///< "The model"
  std::string unit = {};     ///< the meaning of one line, in the plural: "tensors"
  std::string advice = {};   ///< "Build the same model on every rank."
};

/// Throws a UsageError with the same text on every rank unless all ranks pass the same lines. The text names the first
/// difference: the line on rank 0, the different line, and its ranks. All ranks must call it.
void require_agreement(const Agreement& agreement, const std::vector<std::string>& lines, Communicator& communicator);

}  // namespace libtrain::detail
