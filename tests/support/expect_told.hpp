#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/communicator.hpp>

namespace libtrain::test {

/// Where one rank makes a mistake, it is the last.
inline bool is_odd_one(const Communicator& communicator) {
  return communicator.rank() == communicator.world_size() - 1;
}

/// `action` ends with a UsageError for all ranks, whose text is the same on all of them and has the fragments; the
/// communicator can be used afterwards. All ranks must call it.
inline void expect_told(Communicator& communicator, const std::function<void()>& action,
                        const std::vector<std::string>& fragments) {
  std::string message = "nothing was thrown";
  try {
    action();
  } catch (const UsageError& error) {
    message = error.what();
    EXPECT_EQ(error.scope(), ErrorScope::all_ranks) << message;
  }
  for (const auto& fragment : fragments) EXPECT_THAT(message, ::testing::HasSubstr(fragment));
  for (const auto& other : communicator.all_gather_bytes(message)) EXPECT_EQ(other, message);
}

/// The same for a mistake that only the odd one makes, which is named.
inline void expect_told_of_one(Communicator& communicator, const std::function<void()>& action,
                               std::vector<std::string> fragments) {
  if (communicator.world_size() > 1) fragments.push_back(text("rank ", communicator.world_size() - 1));
  expect_told(communicator, action, fragments);
}

}  // namespace libtrain::test
