#include <libtrain/base/error.hpp>

#include <gtest/gtest.h>

#include <string>

namespace libtrain {
namespace {

TEST(Error, EachKindHasItsExitCode) {
  EXPECT_EQ(UsageError("x").exit_code(), ExitCode::usage);
  EXPECT_EQ(EnvironmentError("x").exit_code(), ExitCode::environment);
  EXPECT_EQ(CommunicationError("x").exit_code(), ExitCode::communication);
  EXPECT_EQ(static_cast<int>(ExitCode::usage), 2);
  EXPECT_EQ(static_cast<int>(ExitCode::environment), 3);
  EXPECT_EQ(static_cast<int>(ExitCode::communication), 4);
}

TEST(Error, RemembersWhetherAllRanksThrowIt) {
  EXPECT_EQ(UsageError("x").scope(), ErrorScope::this_rank);
  EXPECT_EQ(UsageError("x", ErrorScope::all_ranks).scope(), ErrorScope::all_ranks);
}

TEST(Error, IsCaughtAsItsBaseAndKeepsItsMessage) {
  try {
    throw EnvironmentError("weights.bin is truncated at byte 17.");
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "weights.bin is truncated at byte 17.");
  }
}

TEST(Error, MasksSecretsWhenTheMessageIsStored) {
  const CommunicationError error("GET https://a.blob.core.windows.net/c/x?sv=1&sig=canary gave 403, password: canary");
  EXPECT_EQ(std::string{error.what()}, "GET https://a.blob.core.windows.net/c/x?*** gave 403, password: ***");
}

}  // namespace
}  // namespace libtrain
