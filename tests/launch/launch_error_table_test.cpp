#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/launch/launch.hpp>

namespace libtrain {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

struct Row {
  std::string name;
  Variables variables;
  LaunchOptions options = {};
  /// What the message has to name: variables, values, what to do.
  std::vector<std::string> message;
};

Variables plain_with(const std::string& name, const std::string& value) {
  Variables variables{{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "h"}};
  variables[name] = value;
  return variables;
}

Variables open_mpi_with(const std::string& name, const std::string& value) {
  Variables variables{{"OMPI_COMM_WORLD_RANK", "1"},
                      {"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  variables[name] = value;
  return variables;
}

Variables without_address(const std::string& name, const std::string& value) {
  return {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {name, value}};
}

std::string many_hosts(std::size_t count) {
  std::string list = "h";
  while (--count > 0) list += ",h";
  return list;
}

std::vector<Row> environment_rows() {
  return {
      {.name = "rank alone", .variables = {{"RANK", "3"}}, .message = {"RANK=3", "WORLD_SIZE is not", "Set both"}},
      {.name = "size alone", .variables = {{"WORLD_SIZE", "8"}}, .message = {"WORLD_SIZE=8", "RANK is not"}},
      {.name = "Open MPI size alone",
       .variables = {{"OMPI_COMM_WORLD_SIZE", "8"}},
       .message = {"OMPI_COMM_WORLD_SIZE=8", "OMPI_COMM_WORLD_RANK is not"}},
      {.name = "Open MPI rank alone",
       .variables = {{"OMPI_COMM_WORLD_RANK", "2"}},
       .message = {"OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE is not"}},
      {.name = "PMIx rank alone",
       .variables = {{"PMIX_RANK", "2"}},
       .message = {"PMIX_RANK=2", "SLURM_STEP_NUM_TASKS"}},
      {.name = "PMI size alone", .variables = {{"PMI_SIZE", "2"}}, .message = {"PMI_SIZE=2", "PMI_RANK is not"}},
      {.name = "PALS without a size", .variables = {{"PALS_RANKID", "2"}}, .message = {"PALS_RANKID=2", "PMI_SIZE"}},
      {.name = "torchrun without ranks",
       .variables = {{"TORCHELASTIC_RUN_ID", "x"}},
       .message = {"torchrun", "RANK and WORLD_SIZE are not set"}},
      {.name = "task index without a world size",
       .variables = {{"AZ_BATCHAI_TASK_INDEX", "1"}},
       .message = {"AZ_BATCHAI_TASK_INDEX=1", "--world-size"}},
      {.name = "task index 0 of several nodes",
       .variables = {{"AZ_BATCHAI_TASK_INDEX", "0"}, {"AZ_BATCH_HOST_LIST", "a,b"}},
       .message = {"AZ_BATCHAI_TASK_INDEX=0", "--world-size"}},
      {.name = "half-set pair that contradicts Slurm",
       .variables = {{"WORLD_SIZE", "2"}, {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}},
       .message = {"WORLD_SIZE=2", "SLURM_PROCID=1, SLURM_NTASKS=4", "Unset"}},
      {.name = "no number", .variables = plain_with("RANK", "one"), .message = {"RANK is 'one'", "whole number"}},
      {.name = "trailing text", .variables = plain_with("WORLD_SIZE", "4x"), .message = {"WORLD_SIZE is '4x'"}},
      {.name = "negative rank", .variables = plain_with("RANK", "-1"), .message = {"RANK is '-1'", "from 0 to"}},
      {.name = "world of zero",
       .variables = plain_with("WORLD_SIZE", "0"),
       .message = {"WORLD_SIZE is '0'", "from 1 to"}},
      {.name = "overflow",
       .variables = plain_with("WORLD_SIZE", "99999999999999999999"),
       .message = {"WORLD_SIZE is '99999999999999999999'"}},
      {.name = "unexpanded variable", .variables = plain_with("RANK", "$RANK"), .message = {"RANK is '$RANK'"}},
      {.name = "control character in a number",
       .variables = plain_with("RANK", "1\n"),
       .message = {R"(RANK is '1\x0a')"}},
      {.name = "rank is world size",
       .variables = plain_with("RANK", "4"),
       .message = {"RANK=4", "WORLD_SIZE=4", "below"}},
      {.name = "rank above world size",
       .variables = open_mpi_with("OMPI_COMM_WORLD_RANK", "9"),
       .message = {"OMPI_COMM_WORLD_RANK=9", "OMPI_COMM_WORLD_SIZE=4"}},
      {.name = "local rank is local size",
       .variables = open_mpi_with("OMPI_COMM_WORLD_LOCAL_RANK", "2"),
       .message = {"OMPI_COMM_WORLD_LOCAL_RANK=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2"}},
      {.name = "LOCAL_RANK above Open MPI's local size",
       .variables = open_mpi_with("LOCAL_RANK", "3"),
       .message = {"LOCAL_RANK=3", "OMPI_COMM_WORLD_LOCAL_SIZE=2"}},
      {.name = "more on the node than in the world",
       .variables = open_mpi_with("OMPI_COMM_WORLD_LOCAL_SIZE", "8"),
       .message = {"OMPI_COMM_WORLD_LOCAL_SIZE=8", "OMPI_COMM_WORLD_SIZE=4"}},
      {.name = "local rank without a rank",
       .variables = {{"LOCAL_RANK", "2"}},
       .message = {"LOCAL_RANK=2", "single process=1"}},
      {.name = "node beyond the last",
       .variables =
           {{"FLUX_TASK_RANK", "1"}, {"FLUX_JOB_SIZE", "4"}, {"FLUX_JOB_NNODES", "2"}, {"AZUREML_CR_NODE_RANK", "2"}},
       .message = {"AZUREML_CR_NODE_RANK=2", "FLUX_JOB_NNODES=2"}},
      {.name = "PMIx and Slurm differ",
       .variables = {{"PMIX_RANK", "2"}, {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}},
       .message = {"PMIX_RANK=2", "SLURM_PROCID=1"}},
      {.name = "PMIx and PMI of equal precedence differ",
       .variables = {{"PMIX_RANK", "1"},
                     {"SLURM_STEP_ID", "0"},
                     {"SLURM_PROCID", "1"},
                     {"SLURM_NTASKS", "4"},
                     {"PMI_RANK", "0"},
                     {"PMI_SIZE", "2"}},
       .message = {"PMIX_RANK=1", "PMI_RANK=0, PMI_SIZE=2", "disagree"}},
      {.name = "MVAPICH2 and Horovod of equal precedence differ",
       .variables =
           {{"MV2_COMM_WORLD_RANK", "1"}, {"MV2_COMM_WORLD_SIZE", "4"}, {"HOROVOD_RANK", "1"}, {"HOROVOD_SIZE", "2"}},
       .message = {"MV2_COMM_WORLD_SIZE=4", "HOROVOD_SIZE=2", "disagree"}},
      {.name = "MVAPICH2 of one process and Horovod of two",
       .variables =
           {{"MV2_COMM_WORLD_RANK", "0"}, {"MV2_COMM_WORLD_SIZE", "1"}, {"HOROVOD_RANK", "1"}, {"HOROVOD_SIZE", "2"}},
       .message = {"MV2_COMM_WORLD_SIZE=1", "HOROVOD_SIZE=2", "disagree"}},
      {.name = "rank 0's host is not given",
       .variables = {{"RANK", "1"}, {"WORLD_SIZE", "4"}},
       .message = {"Rank 1 of 4", "MASTER_ADDR", "--dist-url"}},
      {.name = "localhost is no master of several nodes",
       .variables = without_address("AZ_BATCHAI_MPI_MASTER_NODE", "localhost"),
       .message = {"Set MASTER_ADDR"}},
      {.name = "control character in a host",
       .variables = plain_with("MASTER_ADDR", "node\x1b[31m"),
       .message = {R"(MASTER_ADDR is 'node\x1b[31m')"}},
      {.name = "space in a host", .variables = plain_with("MASTER_ADDR", "a b"), .message = {"MASTER_ADDR is 'a b'"}},
      {.name = "option as a host",
       .variables = plain_with("MASTER_ADDR", "-oProxyCommand=x"),
       .message = {"MASTER_ADDR is"}},
      {.name = "MASTER_ADDR with a port",
       .variables = plain_with("MASTER_ADDR", "10.0.0.4:6000"),
       .message = {"MASTER_ADDR is '10.0.0.4:6000'", "MASTER_PORT"}},
      {.name = "port of zero", .variables = plain_with("MASTER_PORT", "0"), .message = {"MASTER_PORT is '0'", "65535"}},
      {.name = "port too large",
       .variables = plain_with("MASTER_PORT", "65536"),
       .message = {"MASTER_PORT is '65536'"}},
      {.name = "control character in the Batch master",
       .variables = without_address("AZ_BATCH_MASTER_NODE", "10.0.0.4\n:6000"),
       .message = {R"(AZ_BATCH_MASTER_NODE is '10.0.0.4\x0a:6000')"}},
      {.name = "Batch master without a host",
       .variables = without_address("AZ_BATCH_MASTER_NODE", ":6000"),
       .message = {"AZ_BATCH_MASTER_NODE is ':6000'"}},
      {.name = "empty item in a host list",
       .variables = without_address("AZ_BATCH_HOST_LIST", "a,,b"),
       .message = {"AZ_BATCH_HOST_LIST is 'a,,b'"}},
      {.name = "host list over the cap",
       .variables = without_address("AZ_BATCH_NODE_LIST", many_hosts(65'537)),
       .message = {"AZ_BATCH_NODE_LIST names more than 65536 hosts"}},
      {.name = "Slurm list over the cap",
       .variables = without_address("SLURM_JOB_NODELIST", "n[0-65536]"),
       .message = {"'n[0-65536]'", "more than 65536 hosts"}},
      {.name = "init method of an unknown kind",
       .variables = without_address("AZ_BATCHAI_PYTORCH_INIT_METHOD", "http://10.0.0.4:1"),
       .message = {"AZ_BATCHAI_PYTORCH_INIT_METHOD is 'http://10.0.0.4:1'", "file:///"}},
      {.name = "backend with control characters",
       .variables = plain_with("AZ_BATCHAI_PYTORCH_BACKEND", "nccl\n"),
       .message = {R"(AZ_BATCHAI_PYTORCH_BACKEND is 'nccl\x0a')"}},
      {.name = "Slurm step that is no number",
       .variables = {{"SLURM_STEP_ID", "batch"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}},
       .message = {"SLURM_STEP_ID is 'batch'"}},
  };
}

std::vector<Row> option_rows() {
  return {
      {.name = "world size without a rank",
       .variables = {},
       .options = {.world_size = 4},
       .message = {"--world-size=4", "--rank is not"}},
      {.name = "rank without a world size",
       .variables = {},
       .options = {.rank = 0},
       .message = {"--rank=0", "--world-size is not"}},
      {.name = "rank is world size",
       .variables = {},
       .options = {.rank = 4, .world_size = 4},
       .message = {"--rank=4, --world-size=4", "below"}},
      {.name = "negative rank", .variables = {}, .options = {.rank = -1, .world_size = 4}, .message = {"--rank -1"}},
      {.name = "world of zero",
       .variables = {},
       .options = {.rank = 0, .world_size = 0},
       .message = {"--world-size 0"}},
      {.name = "negative local rank", .variables = {}, .options = {.local_rank = -1}, .message = {"--local-rank -1"}},
      {.name = "local rank not below local size",
       .variables = open_mpi_with("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
       .options = {.local_rank = 2},
       .message = {"--local-rank=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2"}},
      {.name = "world size against mpirun",
       .variables = open_mpi_with("RANK", "1"),
       .options = {.world_size = 8},
       .message = {"--world-size=8", "OMPI_COMM_WORLD_SIZE=4"}},
      {.name = "URL without a port",
       .variables = {},
       .options = {.rank = 0, .world_size = 2, .dist_url = "tcp://host"},
       .message = {"--dist-url is 'tcp://host'", "tcp://host:port"}},
      {.name = "relative file",
       .variables = {},
       .options = {.rank = 0, .world_size = 2, .dist_url = "file://init"},
       .message = {"--dist-url is 'file://init'"}},
      {.name = "torch's URL with ranks in the query",
       .variables = {},
       .options = {.rank = 0, .world_size = 2, .dist_url = "tcp://h:1?rank=0"},
       .message = {"--dist-url is 'tcp://h:1?***'"}},
      {.name = "empty backend", .variables = {}, .options = {.dist_backend = ""}, .message = {"--dist-backend is ''"}},
  };
}

template <typename Expected>
void check(const std::vector<Row>& rows) {
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    try {
      detect_launch(Environment{row.variables}, row.options);
      ADD_FAILURE() << "was accepted";
    } catch (const Expected& error) {
      const std::string message = error.what();
      for (const auto& part : row.message)
        EXPECT_NE(message.find(part), std::string::npos) << part << "\nin: " << message;
      for (const char c : message) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) << message;
    } catch (const Error& error) {
      ADD_FAILURE() << "another kind of error: " << error.what();
    }
  }
}

TEST(LaunchErrorTable, BadEnvironmentsAreEnvironmentErrors) {
  check<EnvironmentError>(environment_rows());
}
TEST(LaunchErrorTable, BadOptionsAreUsageErrors) {
  check<UsageError>(option_rows());
}

}  // namespace
}  // namespace libtrain
