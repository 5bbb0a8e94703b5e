#include <libtrain/launch/families.hpp>

#include <algorithm>
#include <array>

namespace libtrain::detail {

std::span<const Family> families() {
  static constexpr std::array<Family, 12> rows{{
      // launcher, standing, speaks MPI, counts, reader
      {Launcher::explicit_options, 1, false, Counts::ranks, read_explicit_options},
      {Launcher::torchrun, 2, false, Counts::ranks, read_torchrun},
      {Launcher::open_mpi, 3, true, Counts::ranks, read_open_mpi},
      {Launcher::plain, 4, false, Counts::ranks, read_plain},
      {Launcher::pmix, 5, true, Counts::ranks_or_agents, read_pmix},
      {Launcher::pmi, 5, true, Counts::ranks, read_pmi},
      {Launcher::slurm, 6, false, Counts::ranks_or_agents, read_slurm},
      {Launcher::pals, 7, true, Counts::ranks_or_agents, read_pals},
      {Launcher::flux, 7, true, Counts::ranks_or_agents, read_flux},
      {Launcher::mvapich2, 7, true, Counts::ranks, read_mvapich2},
      {Launcher::horovod, 7, false, Counts::ranks, read_horovod},
      {Launcher::azure_batchai, 8, false, Counts::nodes, read_azure_batchai},
  }};
  return rows;
}

const Family& family_of(Launcher launcher) {
  const auto rows = families();
  return *std::find_if(rows.begin(), rows.end(), [&](const Family& row) { return row.launcher == launcher; });
}

}  // namespace libtrain::detail
