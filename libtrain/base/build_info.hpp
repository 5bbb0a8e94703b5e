#pragma once

#include <string>
#include <vector>

namespace libtrain {

/// The versions this library was built with; a string is empty if that part is disabled.
struct BuildInfo {
  std::string version;
  std::string git_revision;
  std::string compiler;
  std::string build_type;
  std::string torch;
  std::string cuda;
  std::string nccl;
  std::string mpi;
  std::string arrow;
  std::vector<std::string> backends;  ///< communicator backends compiled in
};

const BuildInfo& build_info();

}  // namespace libtrain
