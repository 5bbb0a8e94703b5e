#include <libtrain/launch/launch.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

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

int device_index(const Launch& launch, int visible_devices) {
  if (visible_devices < 1) {
    throw UsageError(text("This process sees ", visible_devices, " devices. Use the CPU, or make a device visible."));
  }
  if (!launch.local_rank.value) {
    throw UsageError(text("The local rank of rank ", launch.rank.value,
                          " is not known before the ranks connect. Set LOCAL_RANK, or choose the device later."));
  }
  return *launch.local_rank.value % visible_devices;
}

}  // namespace libtrain
