#pragma once

#include <string>

#include <gtest/gtest.h>

namespace libtrain::test {

/// What `body` threw as an `Expected`; the test fails where it threw nothing. Other exceptions pass.
template <typename Expected, typename Body>
std::string message_of(const Body& body) {
  try {
    body();
  } catch (const Expected& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace libtrain::test
