#pragma once

#include <string>
#include <vector>

namespace libtrain {

/// What this library was built from; empty where a part is off.
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
