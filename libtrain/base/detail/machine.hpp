#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace libtrain::detail {

/// The name of this host as `hostname` prints it, or nothing where the system does not say.
std::string host_name();

/// What tells the running kernel from all others, as long as it runs, or nothing where the system does not say. The
/// containers of a machine see the same.
std::string boot_id();

/// The cores that this process may run on (sched_getaffinity), on machines of any size. mpirun, taskset and cpusets
/// make them fewer than the machine has.
std::set<int> usable_cores();

/// How many cores' worth of time the container of this process may use (cgroup quota, versions 1 and 2), or nothing
/// where there is no limit. All processes of the container share it.
std::optional<double> cpu_quota();

/// How much memory the processes of this container may use together, in bytes: the machine's, or the container's limit
/// (cgroup, versions 1 and 2) where that is less.
std::int64_t memory_bytes();

/// The most memory that this process has had resident, in bytes.
std::int64_t peak_rss_bytes();

/// The quota in cores that cgroup version 2 states as "200000 100000", or "max 100000" for none; nothing for garbage.
std::optional<double> parse_cpu_max(std::string_view text);

/// The limit in bytes that a cgroup states as a number, or as "max" for none; nothing for garbage.
std::optional<std::int64_t> parse_memory_max(std::string_view text);

}  // namespace libtrain::detail
