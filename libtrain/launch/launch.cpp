#include <libtrain/launch/launch.hpp>

namespace libtrain {

std::string_view to_string(Launcher launcher) {
  switch (launcher) {
    case Launcher::explicit_options:
      return "explicit_options";
    case Launcher::torchrun:
      return "torchrun";
    case Launcher::open_mpi:
      return "open_mpi";
    case Launcher::plain:
      return "plain";
    case Launcher::pmix:
      return "pmix";
    case Launcher::pmi:
      return "pmi";
    case Launcher::slurm:
      return "slurm";
    case Launcher::pals:
      return "pals";
    case Launcher::flux:
      return "flux";
    case Launcher::mvapich2:
      return "mvapich2";
    case Launcher::horovod:
      return "horovod";
    case Launcher::azure_batchai:
      return "azure_batchai";
    case Launcher::single:
      return "single";
  }
  return "unknown";
}

}  // namespace libtrain
