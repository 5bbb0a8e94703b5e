#pragma once

#include <string>

#include <libtrain/base/environment.hpp>
#include <libtrain/comm/detail/tcp/secret.hpp>

namespace libtrain::detail {

/// What the ranks of a job prove to each other when they meet.
struct JobKey {
  GroupKey key;
  /// Where it comes from: "LIBTRAIN_SECRET", or the path of a file.
  std::string source = {};
  /// Ranks on other hosts have it, too, and must prove it: it was given to them, or lies on a network file system.
  bool is_of_all_hosts = false;
  /// Why the user's own secret is not that of the home directory; else empty. For rank 0 to log.
  std::string warning = {};

  /// A number that says which key it is, and nothing about it.
  std::uint64_t fingerprint() const;
};

/// The key of `job`, made of the first of
/// - LIBTRAIN_SECRET, or the content of the file LIBTRAIN_SECRET_FILE: at least 16 characters;
/// - this user's own secret, in libtrain/secret in the folder XDG_CONFIG_HOME or ~/.config. The first process that
/// needs
///   it makes it of random bytes; where that cannot be, or the file is not private, in /dev/shm/libtrain-<user id>.
/// Throws EnvironmentError for a secret that is too short or cannot be read, and for a file of LIBTRAIN_SECRET_FILE or
/// a folder in /dev/shm of another user or open to others.
JobKey find_job_key(const Environment& environment, const std::string& job);

/// How a process was started, for jobs that nothing else names.
struct Command {
  std::string program;          ///< its name without folders
  std::uint64_t arguments = 0;  ///< stands for its arguments but those that say the rank (--rank, --local-rank); not 0
};

Command own_command();

/// The same from an argument list as in /proc/self/cmdline, each argument with a zero byte behind it.
Command parse_command(const std::string& arguments);

/// The key of ranks without a common secret: any process can make it. It only keeps jobs apart.
GroupKey open_key(const std::string& job);

/// Whether files of this type (`f_type` of statfs(2)) are the same on several hosts.
bool is_network_file_system(unsigned long type);

}  // namespace libtrain::detail
