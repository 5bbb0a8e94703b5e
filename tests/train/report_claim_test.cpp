#include <libtrain/train/detail/report_claim.hpp>

#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/text.hpp>

#include <tests/support/fork_child.hpp>

namespace libtrain::detail {
namespace {

// A job of this test alone: the names belong to the whole host.
std::string job(const char* name) {
  return text("test ", getpid(), ' ', name);
}

// Forked processes that claim `job` at the same moment, and keep what they got until they are killed.
class Claimants {
 public:
  Claimants(const std::string& job, int count) : expected_(count) {
    EXPECT_EQ(pipe(start_), 0);
    EXPECT_EQ(pipe(answers_), 0);
    for (int i = 0; i < count; ++i) {
      const pid_t process = test::fork_child();
      if (process == 0) claim(job);
      processes_.push_back(process);
    }
    close(start_[0]);
    close(answers_[1]);
  }
  Claimants(const Claimants&) = delete;  // one owner of the processes
  Claimants& operator=(const Claimants&) = delete;
  ~Claimants() {
    kill_all();
    close(answers_[0]);
  }

  /// Lets them go, and says how many got the claim once all have tried.
  int granted() {
    close(start_[1]);
    int granted = 0;
    for (int i = 0; i < expected_; ++i) {
      char answer = 0;
      EXPECT_EQ(read(answers_[0], &answer, 1), 1) << "a process ended without an answer";
      granted += answer == 'y' ? 1 : 0;
    }
    return granted;
  }

  void kill_all() {
    for (const auto process : processes_) {
      kill(process, SIGKILL);
      waitpid(process, nullptr, 0);
    }
    processes_.clear();
  }

 private:
  [[noreturn]] void claim(const std::string& job) {
    alarm(60);  // the bound of every wait here: no process and no read outlives it
    close(start_[1]);
    close(answers_[0]);
    char nothing = 0;
    if (read(start_[0], &nothing, 1) != 0) _exit(1);  // returns when the last writing end is closed
    const ReportClaim claim{job};
    const char answer = claim.granted() ? 'y' : 'n';
    if (write(answers_[1], &answer, 1) != 1) _exit(1);
    for (;;) pause();
  }

  int expected_;
  int start_[2] = {-1, -1};
  int answers_[2] = {-1, -1};
  std::vector<pid_t> processes_;
};

TEST(ReportClaim, IsGivenToTheFirstAndFreeAgainWhenItsOwnerEnds) {
  std::optional<ReportClaim> first{job("a")};
  std::optional<ReportClaim> second{job("a")};
  EXPECT_TRUE(first->granted());
  EXPECT_FALSE(second->granted());
  // One that got nothing frees nothing.
  second.reset();
  EXPECT_FALSE(ReportClaim{job("a")}.granted());
  first.reset();
  EXPECT_TRUE(ReportClaim{job("a")}.granted());
}

TEST(ReportClaim, IsGivenToOneOfManyProcessesUntilItIsKilled) {
  Claimants claimants{job("b"), 8};
  EXPECT_EQ(claimants.granted(), 1);
  EXPECT_FALSE(ReportClaim{job("b")}.granted());
  claimants.kill_all();
  EXPECT_TRUE(ReportClaim{job("b")}.granted());
}

TEST(ReportClaim, WaitsUntilTheOthersHaveRequestedIt) {
  const ReportClaim claim{job("d")};
  const Stopwatch stopwatch;
  claim.wait_for_others(1, std::chrono::milliseconds(200));
  EXPECT_GE(stopwatch.seconds(), 0.2);
  EXPECT_FALSE(ReportClaim{job("d")}.granted());
  EXPECT_FALSE(ReportClaim{job("d")}.granted());
  const Stopwatch again;
  claim.wait_for_others(2, std::chrono::milliseconds(60000));
  // No process connects to one that has no name.
  ReportClaim{job("d")}.wait_for_others(1, std::chrono::milliseconds(60000));
  ReportClaim{""}.wait_for_others(1, std::chrono::milliseconds(60000));
  EXPECT_LT(again.seconds(), 30);
}

TEST(ReportClaim, OfOneJobDoesNotDisturbAnother) {
  const ReportClaim claim{job("c")};
  // One name is the beginning of the other.
  const ReportClaim longer{job("c 1")};
  EXPECT_TRUE(claim.granted());
  EXPECT_TRUE(longer.granted());
  // Open MPI's longest: a host name of 64 characters, a process and a number.
  const auto longest = [](const char* number) {
    return job_name(
        Environment{{{"PMIX_NAMESPACE", text("prterun-", std::string(64, 'h'), '-', getpid(), '@', number)}}});
  };
  const ReportClaim one{longest("1")};
  const ReportClaim two{longest("2")};
  EXPECT_TRUE(one.granted());
  EXPECT_TRUE(two.granted());
}

TEST(ReportClaim, WithoutAJobIsEverybodys) {
  const ReportClaim one{""};
  const ReportClaim two{""};
  EXPECT_TRUE(one.granted());
  EXPECT_TRUE(two.granted());
}

TEST(JobName, RanksOnTheHostAreOpenMpisLocalSize) {
  const auto ranks = [](const char* name, const char* value) {
    return ranks_on_host(Environment{std::map<std::string, std::string, std::less<>>{{name, value}}});
  };
  EXPECT_EQ(ranks("OMPI_COMM_WORLD_LOCAL_SIZE", "4"), 4);
  EXPECT_EQ(ranks("OMPI_COMM_WORLD_LOCAL_SIZE", "many"), std::nullopt);
  EXPECT_EQ(ranks("OMPI_COMM_WORLD_SIZE", "4"), std::nullopt);
}

TEST(JobName, ComesFromPmixOrSlurmsStep) {
  const auto name = [](std::map<std::string, std::string, std::less<>> variables) {
    return job_name(Environment{std::move(variables)});
  };
  EXPECT_EQ(name({}), "");
  EXPECT_EQ(name({{"SLURM_JOB_ID", "7"}}), "");
  EXPECT_EQ(name({{"SLURM_STEP_ID", "0"}}), "");
  EXPECT_NE(name({{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}}), "");
  EXPECT_NE(name({{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}}),
            name({{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "1"}}));
  EXPECT_NE(name({{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}}),
            name({{"SLURM_JOB_ID", "8"}, {"SLURM_STEP_ID", "0"}}));
  // A launcher inside a Slurm step starts a job of its own.
  EXPECT_EQ(name({{"PMIX_NAMESPACE", "x"}, {"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}}),
            name({{"PMIX_NAMESPACE", "x"}}));
}

}  // namespace
}  // namespace libtrain::detail
