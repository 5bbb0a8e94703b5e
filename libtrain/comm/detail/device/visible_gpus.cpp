#include <libtrain/comm/detail/device/visible_gpus.hpp>

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include <libtrain/base/build_info.hpp>
#include <libtrain/base/detail/digits.hpp>
#include <libtrain/base/environment.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

// CUresult in <cuda.h>, which a build without CUDA does not have.
constexpr int kStubLibrary = 34;
constexpr int kNoDevice = 100;

// The first driver release that supports a major version of CUDA, from the release notes of the CUDA toolkit.
std::string_view release_for(int cuda) {
  switch (cuda / 1000) {
    case 12:
      return "525";
    case 13:
      return "580";
    default:
      return {};
  }
}

std::string version_text(int cuda) {
  return text(cuda / 1000, '.', cuda % 1000 / 10);
}

std::string error_text(const CudaDriver& driver, std::string_view call, int code) {
  const char* meaning = nullptr;
  if (driver.get_error_string(code, &meaning) != 0 || meaning == nullptr) meaning = "unknown error";
  return text(call, " of CUDA's driver failed with code ", code, ": ", meaning);
}

std::string why_none_is_visible(const char* visible_devices) {
  if (visible_devices == nullptr) return "CUDA's driver finds no GPU in this machine or container";
  const std::string_view value{visible_devices};
  if (value.empty() || value == "-1" || value == "NoDevFiles") {
    return text("CUDA_VISIBLE_DEVICES='", value, "' hides all GPUs from this process");
  }
  return text("CUDA_VISIBLE_DEVICES='", value, "' names no GPU of this machine");
}

VisibleGpus broken(std::string problem, int cuda = 0) {
  return {.problem = std::move(problem), .is_broken = true, .cuda = cuda};
}

// In the format of nvidia-smi -L.
std::string uuid_text(const std::array<unsigned char, 16>& bytes) {
  auto uuid = hexadecimal(bytes);
  for (const std::size_t place : {20, 16, 12, 8, 0}) uuid.insert(place, "-");
  return "GPU" + uuid;
}

template <typename Function>
void look_up(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
}

// Null if the library is missing or has not all functions. It stays loaded.
const CudaDriver* load_driver(std::string& problem) {
  static CudaDriver driver;
  void* const library = dlopen("libcuda.so.1", RTLD_LAZY);
  if (library == nullptr) {
    const char* const reason = dlerror();
    problem = reason == nullptr ? "libcuda.so.1 cannot be loaded" : reason;
    return nullptr;
  }
  look_up(library, "cuInit", driver.init);
  look_up(library, "cuDriverGetVersion", driver.get_version);
  look_up(library, "cuDeviceGetCount", driver.count_devices);
  look_up(library, "cuDeviceGet", driver.get_device);
  look_up(library, "cuDeviceGetName", driver.get_name);
  look_up(library, "cuDeviceGetUuid_v2", driver.get_uuid);
  look_up(library, "cuGetErrorString", driver.get_error_string);
  const bool is_complete = driver.init != nullptr && driver.get_version != nullptr && driver.count_devices != nullptr &&
                           driver.get_device != nullptr && driver.get_name != nullptr && driver.get_uuid != nullptr &&
                           driver.get_error_string != nullptr;
  if (is_complete) return &driver;
  problem = "libcuda.so.1 lacks functions of CUDA's driver";
  return nullptr;
}

// "13.0.88" is 13000: a driver of the same major version is enough.
int needed_cuda() {
  const std::string_view cuda = build_info().cuda;
  const auto major = parse_integer(cuda.substr(0, cuda.find('.')), 1, 1000);
  return major ? static_cast<int>(*major) * 1000 : 0;
}

}  // namespace

VisibleGpus find_gpus(const GpuEnvironment& environment) {
  if (environment.needed_cuda == 0) {
    return {.problem = "this libtrain was built without CUDA (configure with -DLIBTRAIN_CUDA=ON)"};
  }
  if (environment.driver == nullptr) {
    return {.problem = text("CUDA's driver is not installed, or not visible in this container (",
                            environment.why_no_driver, ")")};
  }
  const auto& driver = *environment.driver;
  VisibleGpus found;
  // Before cuInit, which fails for some drivers that are too old.
  if (driver.get_version(&found.cuda) != 0) found.cuda = 0;
  if (found.cuda != 0 && found.cuda < environment.needed_cuda) {
    const auto release = release_for(environment.needed_cuda);
    return broken(
        text("CUDA's driver is too old: it supports CUDA ", version_text(found.cuda), ", and this build needs CUDA ",
             version_text(environment.needed_cuda), release.empty() ? "" : ", that is a driver of release ", release,
             release.empty() ? "" : " or newer"),
        found.cuda);
  }
  const int initialized = driver.init(0);
  if (initialized == kStubLibrary) {
    return broken(
        "the libcuda.so.1 that was loaded is the stub of the CUDA toolkit: remove its folder from LD_LIBRARY_PATH");
  }
  if (initialized == kNoDevice) {
    found.problem = why_none_is_visible(environment.visible_devices);
    return found;
  }
  if (initialized != 0) return broken(error_text(driver, "cuInit", initialized), found.cuda);
  int count = 0;
  if (const int code = driver.count_devices(&count); code != 0) {
    return broken(error_text(driver, "cuDeviceGetCount", code), found.cuda);
  }
  for (int index = 0; index < count; ++index) {
    int device = 0;
    std::array<char, 256> name{};
    std::array<unsigned char, 16> uuid{};
    int code = driver.get_device(&device, index);
    if (code == 0) code = driver.get_name(name.data(), static_cast<int>(name.size()) - 1, device);
    if (code == 0) code = driver.get_uuid(uuid.data(), device);
    if (code != 0) return broken(text("device ", index, ": ", error_text(driver, "cuDeviceGet", code)), found.cuda);
    found.gpus.push_back({.name = name.data(), .uuid = uuid_text(uuid)});
  }
  if (count == 0) found.problem = why_none_is_visible(environment.visible_devices);
  return found;
}

const VisibleGpus& visible_gpus() {
  static const VisibleGpus found = [] {
    GpuEnvironment environment{.visible_devices = std::getenv("CUDA_VISIBLE_DEVICES"), .needed_cuda = needed_cuda()};
    if (environment.needed_cuda != 0) environment.driver = load_driver(environment.why_no_driver);
    return find_gpus(environment);
  }();
  return found;
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar ...", or with "Open Kernel Module for x86_64".
std::string kernel_driver_version(const std::string& file) {
  std::ifstream stream{file};
  for (std::string word; stream >> word;) {
    if (word.find_first_not_of("0123456789.") == std::string::npos && word.find('.') != std::string::npos) return word;
  }
  return {};
}

std::string describe_gpu(int index) {
  const auto& gpus = visible_gpus().gpus;
  const auto device = text("cuda:", index);
  if (index < 0 || static_cast<std::size_t>(index) >= gpus.size()) return device;
  const auto& gpu = gpus[static_cast<std::size_t>(index)];
  return text(device, " (", gpu.name, ", ", gpu.uuid, ")");
}

}  // namespace libtrain::detail
