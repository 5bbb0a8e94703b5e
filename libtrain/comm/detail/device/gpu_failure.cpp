#include <libtrain/comm/detail/device/gpu_failure.hpp>

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/device/visible_gpus.hpp>

namespace libtrain::detail {

namespace {

constexpr const char* kFull =
    "Use a smaller batch or model, or fewer ranks on this GPU; nvidia-smi shows which processes use its memory.";
constexpr const char* kUnavailable =
    "Another process uses this GPU, which is in exclusive mode, or the GPU is not ready. nvidia-smi shows its "
    "processes "
    "and its compute mode; nvidia-smi -c DEFAULT allows several processes.";
constexpr const char* kDamaged =
    "The GPU or its link has failed. Look for Xid messages in dmesg, and take this host out of the job until the GPU "
    "has been reset.";
constexpr const char* kDriver = "Check the driver on this host: nvidia-smi, and dmesg for Xid messages.";
constexpr const char* kProgram =
    "A kernel accessed wrong memory or found wrong data, such as a label that is not below the number of classes. Run "
    "again with CUDA_LAUNCH_BLOCKING=1 to find the call, which this message does not show.";

struct Meaning {
  ExitCode code;
  const char* advice;
};

// By the numbers of cudaError_t in <driver_types.h>, which a build without CUDA does not have.
Meaning meaning_of(int code) {
  switch (code) {
    case 2:  // memory allocation
      return {ExitCode::environment, kFull};
    case 46:   // devices unavailable
    case 216:  // device already in use
    case 805:  // the MPS server: connection failed, and so on up to its client terminated
    case 806:
    case 807:
    case 808:
    case 809:
    case 810:
      return {ExitCode::environment, kUnavailable};
    case 214:  // uncorrectable ECC error
    case 220:  // uncorrectable NVLink error
    case 226:  // contained memory error
    case 714:  // hardware stack error
    case 911:  // external device
      return {ExitCode::environment, kDamaged};
    case 3:    // initialization error
    case 35:   // insufficient driver
    case 100:  // no device
    case 101:  // invalid device
    case 201:  // device uninitialized
    case 304:  // operating system
    case 802:  // system not ready
    case 803:  // system driver mismatch
    case 804:  // forward compatibility not supported
    case 999:  // unknown, such as a GPU that has fallen off the bus
      return {ExitCode::environment, kDriver};
    case 700:  // illegal address
    case 710:  // device-side assert
    case 715:  // illegal instruction
    case 716:  // misaligned address
    case 717:  // invalid address space
    case 718:  // invalid program counter
    case 719:  // launch failure
      return {ExitCode::failure, kProgram};
    default:
      return {ExitCode::failure, "Run again with CUDA_LAUNCH_BLOCKING=1 to find the call that failed."};
  }
}

std::string current_gpu() {
  try {
    if (c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) {
      return describe_gpu(c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getDevice().index());
    }
  } catch (const std::exception&) {
    // The failure must still be reported.
  }
  return "the GPU";
}

// LibTorch adds lines of general advice.
std::string first_line(const std::string& message) {
  return message.substr(0, message.find('\n'));
}

GpuFailure describe(const std::string& what, Meaning meaning) {
  return {meaning.code, text("On ", current_gpu(), ": ", what, what.ends_with('.') ? " " : ". ", meaning.advice)};
}

}  // namespace

std::optional<GpuFailure> gpu_failure_of(const c10::Error& error) {
  const std::string message = error.what_without_backtrace();
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
    return describe(first_line(message), {ExitCode::environment, kFull});
  }
  if (const auto* failure = dynamic_cast<const c10::AcceleratorError*>(&error)) {
    return describe(text(first_line(message), " (code ", failure->get_error_code(), ")"),
                    meaning_of(failure->get_error_code()));
  }
  // c10::CUDAError, and what is thrown with TORCH_CHECK: without a code.
  if (message.starts_with("CUDA error: ")) {
    return describe(first_line(message), {ExitCode::failure, meaning_of(0).advice});
  }
  return std::nullopt;
}

}  // namespace libtrain::detail
