#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "launch_table.hpp"

namespace libtrain::launch_table {
namespace {

/// The Azure Batch layer of a two-node job.
const Variables kBatch{{"AZ_BATCH_MASTER_NODE", "10.0.0.4:6000"},
                       {"AZ_BATCH_HOST_LIST", "10.0.0.4,10.0.0.5"},
                       {"AZ_BATCH_NODE_LIST", "10.0.0.4;10.0.0.5"},
                       {"AZUREML_RUN_ID", "run"}};

std::vector<Row> azure_rows() {
  const Variables pytorch{
      {"RANK", "5"},           {"WORLD_SIZE", "8"},         {"LOCAL_RANK", "1"},      {"NODE_RANK", "1"},
      {"MASTER_PORT", "6105"}, {"MASTER_ADDR", "10.0.0.4"}, {"AZUREML_RUN_ID", "run"}};
  const Variables no_address{{"RANK", "1"}, {"WORLD_SIZE", "2"}};
  return {
      {.name = "Azure ML mpi job on one node",
       .variables =
           with(open_mpi(3, 4, 3, 4), {{"AZUREML_RUN_ID", "run"}, {"AZ_BATCHAI_MPI_MASTER_NODE", "localhost"}}),
       .expected = {{"launcher", "open_mpi"},
                    {"node_count", "1 from OMPI_COMM_WORLD_LOCAL_SIZE equals OMPI_COMM_WORLD_SIZE"},
                    {"master_address", "localhost from AZ_BATCHAI_MPI_MASTER_NODE"},
                    {"master_port", "6105 from default on Azure ML"},
                    {"rendezvous", "mpi from OMPI_COMM_WORLD_SIZE"}}},
      {.name = "Azure ML mpi job on two nodes never uses the port of Azure Batch",
       .variables = with(kBatch, open_mpi(5, 8, 1, 4)),
       .expected = {{"rank", "5 from OMPI_COMM_WORLD_RANK"},
                    {"master_address", "10.0.0.4 from AZ_BATCH_MASTER_NODE"},
                    {"master_port", "6105 from default on Azure ML"}}},
      {.name = "localhost as MPI master of several nodes is passed over",
       .variables = with(with(kBatch, {{"AZ_BATCHAI_MPI_MASTER_NODE", "localhost"}}), open_mpi(5, 8, 1, 4)),
       .expected = {{"master_address", "10.0.0.4 from AZ_BATCH_MASTER_NODE"}}},
      {.name = "MPI master comes before the Batch master",
       .variables = with(with(kBatch, {{"AZ_BATCHAI_MPI_MASTER_NODE", "10.0.0.9"}}), open_mpi(5, 8, 1, 4)),
       .expected = {{"master_address", "10.0.0.9 from AZ_BATCHAI_MPI_MASTER_NODE"}}},
      {.name = "job master address",
       .variables = with(with(kBatch, {{"AZ_BATCHAI_JOB_MASTER_NODE_IP", "10.0.0.8"}}), open_mpi(5, 8, 1, 4)),
       .expected = {{"master_address", "10.0.0.8 from AZ_BATCHAI_JOB_MASTER_NODE_IP"}}},
      {.name = "task index is the node in an mpi job",
       .variables = with(with(kBatch, {{"AZ_BATCHAI_TASK_INDEX", "1"}}), open_mpi(5, 8, 1, 4)),
       .expected = {{"rank", "5 from OMPI_COMM_WORLD_RANK"}}},
      {.name = "mpi job says its node count",
       .variables = with(open_mpi(5, 8, 1, 4), {{"AZUREML_NODE_COUNT", "2"}, {"AZUREML_CR_NODE_RANK", "1"}}),
       .expected = {{"node_count", "2 from AZUREML_NODE_COUNT"}, {"node_rank", "1 from AZUREML_CR_NODE_RANK"}}},
      {.name = "Azure ML pytorch job on two nodes",
       .variables = with(kBatch, pytorch),
       .expected = {{"launcher", "plain"},
                    {"local_rank", "1 from LOCAL_RANK"},
                    {"local_world_size", "unknown"},
                    {"node_rank", "1 from NODE_RANK"},
                    {"rendezvous", "tcp://10.0.0.4:6105 from MASTER_ADDR, MASTER_PORT"}}},
      {.name = "Azure ML pytorch job on one node",
       .variables = with(pytorch, {{"NODE_RANK", "0"}, {"LOCAL_RANK", "5"}, {"AZUREML_NODE_COUNT", "1"}}),
       .expected = {{"local_world_size", "8 from AZUREML_NODE_COUNT, one node"},
                    {"node_count", "1 from AZUREML_NODE_COUNT"}}},
      {.name = "Batch master with a port",
       .variables = with(no_address, {{"AZ_BATCH_MASTER_NODE", "10.0.0.4:6000"}}),
       .expected = {{"rendezvous", "tcp://10.0.0.4:6105 from AZ_BATCH_MASTER_NODE, default on Azure ML"}}},
      {.name = "Batch master without a port",
       .variables = with(no_address, {{"AZ_BATCH_MASTER_NODE", "10.0.0.4"}}),
       .expected = {{"rendezvous", "tcp://10.0.0.4:6105 from AZ_BATCH_MASTER_NODE, default on Azure ML"}}},
      {.name = "Batch master is a name",
       .variables = with(no_address, {{"AZ_BATCH_MASTER_NODE", "node-0:6000"}, {"MASTER_PORT", "9500"}}),
       .expected = {{"rendezvous", "tcp://node-0:9500 from AZ_BATCH_MASTER_NODE, MASTER_PORT"}}},
      {.name = "Batch master is an IPv6 address",
       .variables = with(no_address, {{"AZ_BATCH_MASTER_NODE", "[fd00::4]:6000"}}),
       .expected = {{"rendezvous", "tcp://[fd00::4]:6105 from AZ_BATCH_MASTER_NODE, default on Azure ML"}}},
      {.name = "host list with commas",
       .variables = with(no_address, {{"AZ_BATCH_HOST_LIST", "10.0.0.6,10.0.0.5"}}),
       .expected = {{"master_address", "10.0.0.6 from AZ_BATCH_HOST_LIST"}}},
      {.name = "node list of names with semicolons",
       .variables = with(no_address, {{"AZ_BATCH_NODE_LIST", "node-0;node-1"}}),
       .expected = {{"master_address", "node-0 from AZ_BATCH_NODE_LIST"}}},
      {.name = "AKS master",
       .variables = with(no_address, {{"MASTER_IP", "10.2.0.1"}}),
       .expected = {{"rendezvous", "tcp://10.2.0.1:29500 from MASTER_IP, default"}}},
      {.name = "Batch AI task index, given world size, shared file",
       .variables = {{"AZ_BATCHAI_TASK_INDEX", "1"},
                     {"AZ_BATCHAI_PYTORCH_INIT_METHOD", "file:///mnt/shared/job/init"},
                     {"AZ_BATCHAI_PYTORCH_BACKEND", "Nccl"}},
       .options = {.world_size = 2},
       .expected = {{"launcher", "azure_batchai"},
                    {"rank", "1 from AZ_BATCHAI_TASK_INDEX"},
                    {"world_size", "2 from --world-size"},
                    {"local_rank", "0 from AZ_BATCHAI_TASK_INDEX (one process per node)"},
                    {"local_world_size", "1 from AZ_BATCHAI_TASK_INDEX (one process per node)"},
                    {"node_rank", "1 from AZ_BATCHAI_TASK_INDEX"},
                    {"node_count", "2 from --world-size"},
                    {"rendezvous", "file:///mnt/shared/job/init from AZ_BATCHAI_PYTORCH_INIT_METHOD"},
                    {"backend", "nccl from AZ_BATCHAI_PYTORCH_BACKEND"}}},
      {.name = "Batch AI task index, given world size, tcp",
       .variables = {{"AZ_BATCHAI_TASK_INDEX", "0"}, {"AZ_BATCHAI_PYTORCH_INIT_METHOD", "tcp://10.0.0.4:23456"}},
       .options = {.world_size = 2},
       .expected = {{"launcher", "azure_batchai"},
                    {"rank", "0 from AZ_BATCHAI_TASK_INDEX"},
                    {"rendezvous", "tcp://10.0.0.4:23456 from AZ_BATCHAI_PYTORCH_INIT_METHOD"}}},
      {.name = "Batch AI values handed over as options",
       .variables = {{"AZ_BATCHAI_TASK_INDEX", "1"}},
       .options = {.rank = 1, .world_size = 2, .dist_url = "file:///mnt/shared/init", .dist_backend = "gloo"},
       .expected = {{"launcher", "explicit_options"},
                    {"rank", "1 from --rank"},
                    {"world_size", "2 from --world-size"},
                    {"local_rank", "0 from AZ_BATCHAI_TASK_INDEX (one process per node)"},
                    {"rendezvous", "file:///mnt/shared/init from --dist-url"},
                    {"backend", "gloo from --dist-backend"}}},
  };
}

TEST(LaunchTable, RecognisesAzureJobs) {
  check(azure_rows());
}

}  // namespace
}  // namespace libtrain::launch_table
