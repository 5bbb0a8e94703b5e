#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace libtrain::detail {

/// The name of this host as `hostname` prints it; empty if the system does not provide it.
std::string host_name();

/// Identifies the running kernel until it reboots, the same in all containers of a machine; empty if the system does
/// not provide it.
std::string boot_id();

/// Identifies this machine: its boot id, or its host name if it has none.
std::string machine_id();

/// The namespace of `kind` ("pid", "net") that this process runs in, such as "pid:[4026531836]"; empty if unknown.
std::string own_namespace(std::string_view kind);

/// The cores that this process may run on (sched_getaffinity), on machines of any size. mpirun, taskset and cpusets
/// limit them.
std::set<int> usable_cores();

/// The CPU time that this container may use, in cores (cgroup quota, versions 1 and 2); std::nullopt if there is no
/// limit. All processes of the container share it.
std::optional<double> cpu_quota();

/// How often the scheduler looked at the CPU quota of this container, and in how many of these periods (100 ms by
/// default) it stopped the container's threads because the quota was used up. Both only grow.
struct CpuThrottling {
  std::int64_t periods = 0;
  std::int64_t throttled = 0;
};

/// std::nullopt without a quota, or if the system does not tell (cgroup, versions 1 and 2).
std::optional<CpuThrottling> cpu_throttling();

/// How often the processors have reduced their clocks because of heat or power, summed over the usable cores;
/// std::nullopt if the system does not tell, as in most virtual machines.
std::optional<std::int64_t> clock_throttling();

/// The memory in bytes that the processes of this container may use together: that of the machine, or the container's
/// limit (cgroup, versions 1 and 2) if that is less.
std::int64_t memory_bytes();

/// The resident memory of this process in bytes, now, or 0 if the system does not tell.
std::int64_t rss_bytes();

/// The peak resident memory of this process in bytes.
std::int64_t peak_rss_bytes();

/// The quota in cores that cgroup version 2 writes as "200000 100000", or "max 100000" for none; std::nullopt if there
/// is none or the text is invalid.
std::optional<double> parse_cpu_max(std::string_view text);

/// The numbers of a cgroup's file cpu.stat; std::nullopt if it has none, or no periods.
std::optional<CpuThrottling> parse_cpu_stat(std::string_view text);

/// The limit in bytes that a cgroup writes as a number, or "max" for none; std::nullopt if there is none or the text is
/// invalid.
std::optional<std::int64_t> parse_memory_max(std::string_view text);

}  // namespace libtrain::detail
