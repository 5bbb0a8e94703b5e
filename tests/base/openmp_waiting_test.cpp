#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace libtrain {
namespace {

// The replaced variable has been restored; openmp_waiting_test.py tests the rest.
TEST(OpenMpWaiting, LeavesTheEnvironmentAsTheKernelGaveIt) {
  std::vector<std::string> given;
  std::ifstream file{"/proc/self/environ"};
  for (std::string entry; std::getline(file, entry, '\0');) given.push_back(entry);
  std::vector<std::string> present;
  for (char** entry = environ; *entry != nullptr; ++entry) present.emplace_back(*entry);
  EXPECT_THAT(given, ::testing::Contains(::testing::MatchesRegex("(_|OLDPWD|SHLVL|PWD|HOSTNAME)=.*")));
  EXPECT_EQ(present, given);
}

}  // namespace
}  // namespace libtrain
