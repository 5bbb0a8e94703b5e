#include <libtrain/base/detail/machine.hpp>

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

// The kernel's own limit is 8,192.
constexpr int kMaxCores = 1 << 14;

std::string contents_of(const std::string& path) {
  std::ifstream file{path};
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Inside a container, the files of its own group are at the top; elsewhere their path is in /proc/self/cgroup. Its
// lines are "0::/path" in version 2 and "4:cpu,cpuacct:/path" in version 1.
std::string group_of(std::string_view controller) {
  std::istringstream lines{contents_of("/proc/self/cgroup")};
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const auto names = "," + line.substr(first + 1, second - first - 1) + ",";
    if (names == "," + std::string{controller} + "," || names.find("," + std::string{controller} + ",") != names.npos) {
      return line.substr(second + 1);
    }
  }
  return "/";
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string{name.data()} : std::string{};
}

std::string boot_id() {
  std::string id;
  std::getline(std::ifstream{"/proc/sys/kernel/random/boot_id"}, id);
  return id;
}

std::string machine_id() {
  auto id = boot_id();
  return id.empty() ? host_name() : id;
}

std::string own_namespace(std::string_view kind) {
  std::array<char, 64> name{};
  const auto length = readlink(text("/proc/self/ns/", kind).c_str(), name.data(), name.size());
  return {name.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
}

std::set<int> usable_cores() {
  std::set<int> result;
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> cores{CPU_ALLOC(kMaxCores),
                                                               [](cpu_set_t* set) { CPU_FREE(set); }};
  const auto bytes = CPU_ALLOC_SIZE(kMaxCores);
  if (!cores || sched_getaffinity(0, bytes, cores.get()) != 0) return result;
  for (int core = 0; core < kMaxCores; ++core) {
    if (CPU_ISSET_S(static_cast<std::size_t>(core), bytes, cores.get())) result.insert(core);
  }
  return result;
}

std::optional<double> cpu_quota() {
  for (const auto& group : {group_of(""), std::string{"/"}}) {
    if (const auto quota = parse_cpu_max(contents_of("/sys/fs/cgroup" + group + "/cpu.max"))) return quota;
  }
  for (const auto& group : {group_of("cpu"), std::string{"/"}}) {
    const auto folder = "/sys/fs/cgroup/cpu" + group;
    const auto quota = contents_of(folder + "/cpu.cfs_quota_us") + " " + contents_of(folder + "/cpu.cfs_period_us");
    if (const auto cores = parse_cpu_max(quota)) return cores;
  }
  return std::nullopt;
}

std::optional<CpuThrottling> cpu_throttling() {
  for (const auto& folder : {"/sys/fs/cgroup" + group_of(""), std::string{"/sys/fs/cgroup"},
                             "/sys/fs/cgroup/cpu" + group_of("cpu"), std::string{"/sys/fs/cgroup/cpu"}}) {
    if (const auto found = parse_cpu_stat(contents_of(folder + "/cpu.stat"))) return found;
  }
  return std::nullopt;
}

std::optional<std::int64_t> clock_throttling() {
  std::optional<std::int64_t> sum;
  for (const int core : usable_cores()) {
    const auto count = contents_of(text("/sys/devices/system/cpu/cpu", core, "/thermal_throttle/core_throttle_count"));
    std::int64_t reductions = 0;
    if (InputText{count} >> reductions) sum = sum.value_or(0) + reductions;
  }
  return sum;
}

std::int64_t memory_bytes() {
  std::int64_t least = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  const auto look_at = [&](const std::string& file) {
    if (const auto limit = parse_memory_max(contents_of("/sys/fs/cgroup" + file))) least = std::min(least, *limit);
  };
  for (const auto& group : {group_of(""), std::string{"/"}}) look_at(group + "/memory.max");
  for (const auto& group : {group_of("memory"), std::string{"/"}}) {
    look_at("/memory" + group + "/memory.limit_in_bytes");
  }
  return least;
}

std::int64_t rss_bytes() {
  InputText words{contents_of("/proc/self/statm")};
  std::int64_t size = 0;
  std::int64_t resident = 0;  // both in pages
  if (!(words >> size >> resident)) return 0;
  return resident * ::sysconf(_SC_PAGESIZE);
}

std::int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

std::optional<double> parse_cpu_max(std::string_view text) {
  InputText words{std::string{text}};
  double microseconds = 0;
  double period = 0;
  // Version 1 writes -1 if there is no limit.
  if (!(words >> microseconds >> period) || microseconds <= 0 || period <= 0) return std::nullopt;
  return microseconds / period;
}

std::optional<CpuThrottling> parse_cpu_stat(std::string_view text) {
  CpuThrottling found;
  InputText words{std::string{text}};
  std::string name;
  for (std::int64_t value = 0; words >> name >> value;) {
    if (name == "nr_periods") found.periods = value;
    if (name == "nr_throttled") found.throttled = value;
  }
  return found.periods > 0 ? std::optional{found} : std::nullopt;
}

std::optional<std::int64_t> parse_memory_max(std::string_view text) {
  InputText words{std::string{text}};
  std::int64_t bytes = 0;
  // Version 1 writes nearly the maximum number if there is no limit.
  if (!(words >> bytes) || bytes <= 0) return std::nullopt;
  return bytes;
}

}  // namespace libtrain::detail
