#include <libtrain/comm/detail/nccl/cuda_errors.hpp>

#include <algorithm>
#include <iterator>

#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

// A meaning that contains another one comes first.
constexpr CudaAdvice kAdvice[] = {
    {2, "out of memory",
     "has no free memory: end other programs that use it (nvidia-smi lists them), or use a smaller batch.", true},
    {46, "CUDA-capable device(s) is/are busy or unavailable",
     "is used by another process in exclusive mode, or has failed: check the processes and the compute mode in "
     "nvidia-smi -q.",
     true},
    {35, "CUDA driver version is insufficient for CUDA runtime version",
     "cannot be used, because the NVIDIA driver is missing or older than this LibTorch needs: check nvidia-smi, and "
     "update the driver or use a LibTorch for its CUDA version.",
     true},
    {100, "no CUDA-capable device is detected",
     "does not exist for this process: check nvidia-smi, CUDA_VISIBLE_DEVICES, and the devices of this container.",
     true},
    {209, "no kernel image is available for execution on the device",
     "is of a kind that LibTorch or libtrain was not compiled for: use --device cpu, or compile libtrain with its "
     "compute "
     "capability in CMAKE_CUDA_ARCHITECTURES.",
     true},
    {214, "uncorrectable ECC error encountered",
     "has lost data in its memory: look for Xid messages in the kernel's log, reset or replace the GPU, and start "
     "again "
     "from the last checkpoint.",
     true},
    {220, "uncorrectable NVLink error detected during the execution",
     "has lost its NVLink connection: look for Xid messages in the kernel's log, and start again on another host.",
     true},
    {721, "Invalid access of peer GPU memory over nvlink or a hardware error",
     "has met a hardware error: look for Xid messages in the kernel's log, and start again on another host.", true},
    {719, "unspecified launch failure",
     "has stopped, by a fault of the hardware or of a kernel: look for Xid messages in the kernel's log; if there are "
     "none, run with CUDA_LAUNCH_BLOCKING=1 to find the kernel.",
     false},
    {700, "an illegal memory access was encountered",
     "has stopped a kernel that used invalid memory: run with CUDA_LAUNCH_BLOCKING=1 to find it; if that finds none, "
     "look for Xid messages in the kernel's log.",
     false},
    {710, "device-side assert triggered",
     "has stopped a kernel that was given invalid values, such as a label that is no class: run with "
     "CUDA_LAUNCH_BLOCKING=1 to find it.",
     false},
    {702, "the launch timed out and was terminated",
     "also drives a display, whose driver ends long kernels: use a GPU without a display.", true},
    {802, "system not yet initialized",
     "is not ready: start the NVIDIA fabric manager of this host, or wait until it has started.", true},
    {803, "system has unsupported display driver / cuda driver combination",
     "cannot be used with this pair of driver and libcuda: restart the host after an update of the driver, and check "
     "LD_LIBRARY_PATH for another libcuda.so.1.",
     true},
};

std::string first_sentence(const std::string& message) {
  auto line = message.substr(0, message.find('\n'));
  if (!line.empty() && line.back() != '.') line += '.';
  return line;
}

}  // namespace

const CudaAdvice* cuda_advice(int code) {
  const auto* const found = std::ranges::find(kAdvice, code, &CudaAdvice::code);
  return found == std::end(kAdvice) ? nullptr : found;
}

const CudaAdvice* find_cuda_advice(std::string_view message) {
  const auto contains = [message](const CudaAdvice& one) {
    return message.find(one.meaning) != std::string_view::npos;
  };
  const auto* const found = std::ranges::find_if(kAdvice, contains);
  return found == std::end(kAdvice) ? nullptr : found;
}

std::string with_cuda_advice(const std::string& message, int rank, int device) {
  const auto* const found = find_cuda_advice(message);
  if (found == nullptr) return message;
  return text(first_sentence(message), " GPU ", device, " of rank ", rank, " on ", host_name(), " ", found->advice);
}

}  // namespace libtrain::detail
