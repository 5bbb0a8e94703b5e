#pragma once

#include <chrono>

#include <libtrain/comm/host_transport.hpp>

namespace libtrain::test {

/// Of `timeout` from now; by default longer than anything in a test takes.
inline WaitPolicy wait_policy(std::chrono::milliseconds timeout = std::chrono::minutes(2)) {
  return {.deadline = Deadline::after(timeout)};
}

}  // namespace libtrain::test
