#pragma once

#include <string>

#include <libtrain/base/environment.hpp>
#include <libtrain/comm/detail/tcp/secret.hpp>

namespace libtrain::detail {

/// The key that the ranks of a job prove to each other that they have.
struct JobKey {
  GroupKey key;
  /// Its source: "LIBTRAIN_SECRET", or the path of a file.
  std::string source = {};
  /// Ranks on other hosts have it, too, and must prove it: the user has set it, or it is on a network file system.
  bool is_of_all_hosts = false;
  /// Why the secret in the home directory is not used; else empty. For rank 0 to log.
  std::string warning = {};

  /// A number that identifies the key and reveals nothing about it.
  std::uint64_t fingerprint() const;
};

/// The key of `job`, derived from the first of
/// - LIBTRAIN_SECRET, or the content of the file LIBTRAIN_SECRET_FILE: at least 16 characters;
/// - this user's own secret, in libtrain/secret in the folder XDG_CONFIG_HOME or ~/.config. The first process that
///   needs it creates it of random bytes; if that is impossible, or the file is not private, the secret is in
///   /dev/shm/libtrain-<user id>.
/// Throws EnvironmentError if the secret is too short or cannot be read, or if the file of LIBTRAIN_SECRET_FILE or the
/// folder in /dev/shm belongs to another user or is open to others.
JobKey find_job_key(const Environment& environment, const std::string& job);

/// How a process was started, for jobs without a name.
struct Command {
  std::string program;          ///< its name without folders
  std::uint64_t arguments = 0;  ///< a hash of its arguments except --rank and --local-rank; never 0
};

Command own_command();

/// The same from an argument list as in /proc/self/cmdline, with a zero byte after each argument.
Command parse_command(const std::string& arguments);

/// The key of ranks without a common secret. Any process can compute it: it only separates jobs.
GroupKey open_key(const std::string& job);

/// Whether a file system of this type (`f_type` of statfs(2)) is shared by several hosts.
bool is_network_file_system(unsigned long type);

}  // namespace libtrain::detail
