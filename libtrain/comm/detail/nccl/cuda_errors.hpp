#pragma once

#include <exception>
#include <string>
#include <string_view>

#include <libtrain/base/error.hpp>

namespace libtrain::detail {

/// What to do about an error of the CUDA runtime that a user may meet on a working installation.
struct CudaAdvice {
  int code = 0;                ///< of cudaError_t
  std::string_view meaning;    ///< as cudaGetErrorString describes it, in messages of CUDA, LibTorch and NCCL
  std::string_view advice;     ///< continues "GPU 2 of rank 3 on node-7 "
  bool is_of_machine = false;  ///< the machine is at fault, not the program
};

/// Null for a code without advice.
const CudaAdvice* cuda_advice(int code);

/// The advice on the error whose meaning `message` contains; null if it contains none.
const CudaAdvice* find_cuda_advice(std::string_view message);

/// The first line of `message`, and a sentence about the GPU of this rank: "CUDA error: out of memory. GPU 2 of rank 3
/// on node-7 has no free memory: end other programs on it, or use a smaller batch." Other messages are returned as they
/// are.
std::string with_cuda_advice(const std::string& message, int rank, int device);

/// Calls `body`. What it throws about a fault of the machine becomes an EnvironmentError with advice.
template <typename Body>
void throw_with_cuda_advice(int rank, int device, const Body& body) {
  try {
    body();
  } catch (const std::exception& error) {
    const auto* const advice = find_cuda_advice(error.what());
    if (advice == nullptr || !advice->is_of_machine) throw;
    throw EnvironmentError(with_cuda_advice(std::string(error.what()), rank, device));
  }
}

}  // namespace libtrain::detail
