#pragma once

#include <chrono>

#include <libtrain/comm/host_transport.hpp>

namespace libtrain::test {

/// A deadline of `timeout` from now; the default is longer than any wait of a test.
inline WaitPolicy wait_policy(std::chrono::milliseconds timeout = std::chrono::minutes(2)) {
  return {.deadline = Deadline::after(timeout)};
}

}  // namespace libtrain::test
