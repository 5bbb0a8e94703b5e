#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "launch_table.hpp"

namespace libtrain::launch_table {
namespace {

/// Rank 5 of 8, four processes on each of two nodes, as torchrun sets it.
const Variables kTorchrun{
    {"TORCHELASTIC_RUN_ID", "job"}, {"RANK", "5"},       {"WORLD_SIZE", "8"},       {"LOCAL_RANK", "1"},
    {"LOCAL_WORLD_SIZE", "4"},      {"GROUP_RANK", "1"}, {"GROUP_WORLD_SIZE", "2"}, {"MASTER_ADDR", "node-0"},
    {"MASTER_PORT", "29400"}};

std::vector<Row> torch_rows() {
  const Variables kubernetes{
      {"RANK", "1"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "job-master-0"}, {"MASTER_PORT", "23456"}};
  return {
      {.name = "torchrun on two nodes",
       .variables = kTorchrun,
       .expected = {{"launcher", "torchrun"},
                    {"rank", "5 from RANK"},
                    {"world_size", "8 from WORLD_SIZE"},
                    {"local_rank", "1 from LOCAL_RANK"},
                    {"local_world_size", "4 from LOCAL_WORLD_SIZE"},
                    {"node_rank", "1 from GROUP_RANK"},
                    {"node_count", "2 from GROUP_WORLD_SIZE"},
                    {"rendezvous", "tcp://node-0:29400 from MASTER_ADDR, MASTER_PORT"}}},
      {.name = "torchrun inside mpirun of one process per node",
       .variables = with(open_mpi(0, 2, 0, 1), kTorchrun),
       .expected = {{"launcher", "torchrun"},
                    {"rank", "5 from RANK"},
                    {"rendezvous", "tcp://node-0:29400 from MASTER_ADDR, MASTER_PORT"}}},
      {.name = "torchrun inside srun of one task per node",
       .variables = with(with(kSrun, {{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}), kTorchrun),
       .expected = {{"launcher", "torchrun"}, {"rank", "5 from RANK"}, {"local_rank", "1 from LOCAL_RANK"}}},
      {.name = "torchrun with Open MPI numbers of another job",
       .variables = with(open_mpi(3, 16, 3, 4), kTorchrun),
       .expected = {{"launcher", "torchrun"}, {"rank", "5 from RANK"}},
       .warnings = {"(torchrun) wins over OMPI_COMM_WORLD_RANK=3, OMPI_COMM_WORLD_SIZE=16"}},
      {.name = "several nodes that meet at localhost",
       .variables = with(kTorchrun, {{"MASTER_ADDR", "localhost"}}),
       .expected = {{"rendezvous", "tcp://localhost:29400 from MASTER_ADDR, MASTER_PORT"}},
       .warnings = {"MASTER_ADDR is 'localhost' in a job of 2 nodes"}},
      {.name = "Kubernetes, plain variables",
       .variables = kubernetes,
       .expected = {{"launcher", "plain"},
                    {"local_rank", "unknown"},
                    {"local_world_size", "unknown"},
                    {"node_count", "unknown"},
                    {"rendezvous", "tcp://job-master-0:23456 from MASTER_ADDR, MASTER_PORT"}}},
      {.name = "default port",
       .variables = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.4"}},
       .expected = {{"master_port", "29500 from default"},
                    {"rendezvous", "tcp://10.0.0.4:29500 from MASTER_ADDR, default"}}},
      {.name = "a job by its name has a port of its own",
       .variables = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.4"}, {"LIBTRAIN_JOB_ID", "resnet"}},
       .expected = {{"job", "resnet from LIBTRAIN_JOB_ID"}, {"master_port", "25628 from LIBTRAIN_JOB_ID"}}},
      {.name = "MASTER_PORT wins over the port of the job",
       .variables = with(kubernetes, {{"LIBTRAIN_JOB_ID", "resnet"}}),
       .expected = {{"master_port", "23456 from MASTER_PORT"}}},
      {.name = "torchrun's run wins over the Slurm job around it",
       .variables =
           with(with(kSrun, {{"SLURM_JOB_ID", "45"}, {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}), kTorchrun),
       .expected = {{"job", "torchrun's run job from TORCHELASTIC_RUN_ID"}}},
      {.name = "a Slurm step",
       .variables = with(kSrun, {{"SLURM_JOB_ID", "45"}}),
       .expected = {{"job", "Slurm job 45, step 0 from SLURM_JOB_ID, SLURM_STEP_ID"},
                    {"master_port", "19000 from SLURM_JOB_ID, SLURM_STEP_ID"}}},
      {.name = "a Slurm step whose ranks were numbered by a script, in an order of its own",
       .variables = with(with(kSrun, {{"SLURM_JOB_ID", "45"}}),
                         {{"RANK", "3"}, {"WORLD_SIZE", "34"}, {"MASTER_ADDR", "n001"}, {"MASTER_PORT", "29500"}}),
       .expected = {{"launcher", "plain"}, {"job", "Slurm job 45, step 0 from SLURM_JOB_ID, SLURM_STEP_ID"}},
       .warnings = {"SLURM_PROCID"}},
      {.name = "a Slurm step of other ranks",
       .variables = with(with(kSrun, {{"SLURM_JOB_ID", "45"}}),
                         {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "n001"}, {"MASTER_PORT", "29500"}}),
       .expected = {{"launcher", "plain"}, {"job", "unknown"}},
       .warnings = {"SLURM_PROCID"}},
      {.name = "torchrun without an identifier of the run",
       .variables = with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "none"}}),
       .expected = {{"launcher", "torchrun"}, {"job", "unknown"}}},
      {.name = "a step of a heterogeneous Slurm job",
       .variables = with(kSrun, {{"SLURM_JOB_ID", "46"}, {"SLURM_JOB_ID_HET_GROUP_0", "45"}}),
       .expected = {{"job", "Slurm job 45, step 0 from SLURM_JOB_ID_HET_GROUP_0, SLURM_STEP_ID"}}},
      {.name = "nothing names the job, not even the Slurm allocation in which its ranks were started by hand",
       .variables = with(kubernetes, {{"SLURM_JOB_ID", "45"}}),
       .expected = {{"job", "unknown"}}},
      {.name = "gloo meets over TCP under mpirun, too",
       .variables = with(open_mpi(1, 4, 1, 4), {{"PMIX_NAMESPACE", "prterun-n1-7@1"}}),
       .options = {.dist_backend = "gloo"},
       .expected = {{"job", "PMIx namespace prterun-n1-7@1 from PMIX_NAMESPACE"},
                    {"rendezvous",
                     "tcp://127.0.0.1:20031 from one node (OMPI_COMM_WORLD_LOCAL_SIZE equals "
                     "OMPI_COMM_WORLD_SIZE), PMIX_NAMESPACE"}}},
      {.name = "IPv6 master in brackets",
       .variables = with(kubernetes, {{"MASTER_ADDR", "[fe80::1]"}}),
       .expected = {{"master_address", "fe80::1 from MASTER_ADDR"},
                    {"rendezvous", "tcp://[fe80::1]:23456 from MASTER_ADDR, MASTER_PORT"}}},
      {.name = "IPv6 master without brackets",
       .variables = with(kubernetes, {{"MASTER_ADDR", "fe80::1"}}),
       .expected = {{"rendezvous", "tcp://[fe80::1]:23456 from MASTER_ADDR, MASTER_PORT"}}},
      {.name = "plain variables that agree with PMI meet over MPI",
       .variables = with(kubernetes, {{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "1"}}),
       .expected = {{"launcher", "plain"},
                    {"local_rank", "1 from MPI_LOCALRANKID"},
                    {"rendezvous", "mpi from PMI_SIZE"}}},
      {.name = "plain variables win over a Slurm step",
       .variables = with(kSrun, {{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "n1"}}),
       .expected = {{"launcher", "plain"}, {"rank", "2 from RANK"}},
       .warnings = {"RANK=2, WORLD_SIZE=4 (plain) wins over SLURM_PROCID=11, SLURM_STEP_NUM_TASKS=34"}},
      {.name = "WORLD_SIZE exported by an sbatch script, ranks by srun",
       .variables = with(kSrun, {{"WORLD_SIZE", "34"}, {"MASTER_ADDR", "n001"}, {"MASTER_PORT", "1024"}}),
       .expected = {{"launcher", "slurm"},
                    {"rank", "11 from SLURM_PROCID"},
                    {"rendezvous", "tcp://n001:1024 from MASTER_ADDR, MASTER_PORT"}}},
      {.name = "srun without an MPI plugin",
       .variables = kSrun,
       .expected = {{"launcher", "slurm"},
                    {"rank", "11 from SLURM_PROCID"},
                    {"world_size", "34 from SLURM_STEP_NUM_TASKS"},
                    {"local_rank", "3 from SLURM_LOCALID"},
                    {"local_world_size", "8 from SLURM_TASKS_PER_NODE"},
                    {"master_address", "n001 from SLURM_JOB_NODELIST"},
                    {"rendezvous", "tcp://n001:29500 from SLURM_JOB_NODELIST, default"}}},
      {.name = "task counts of the allocation do not describe a smaller step",
       .variables = with(kSrun, {{"SLURM_PROCID", "1"},
                                 {"SLURM_STEP_NUM_TASKS", "2"},
                                 {"SLURM_LOCALID", "0"},
                                 {"SLURM_STEP_NUM_NODES", "2"},
                                 {"SLURM_STEP_NODELIST", "n[003-004]"}}),
       .expected = {{"local_world_size", "unknown"}, {"master_address", "n003 from SLURM_STEP_NODELIST"}}},
      {.name = "horovodrun on one host",
       .variables = {{"HOROVOD_RANK", "1"},
                     {"HOROVOD_SIZE", "2"},
                     {"HOROVOD_LOCAL_RANK", "1"},
                     {"HOROVOD_LOCAL_SIZE", "2"},
                     {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.1.1.1"}},
       .expected = {{"launcher", "horovod"},
                    {"master_address", "127.0.0.1 from one node (HOROVOD_LOCAL_SIZE equals HOROVOD_SIZE)"}}},
  };
}

TEST(LaunchTable, RecognisesLaunchersThatMeetOverTcp) {
  check(torch_rows());
}

}  // namespace
}  // namespace libtrain::launch_table
