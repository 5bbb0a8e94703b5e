#pragma once

#include <string>

#include <libtrain/comm/communicator.hpp>

namespace libtrain::detail {

/// 128 random bits as 32 hexadecimal digits that identify this run: rank 0's on every rank. All ranks must call it.
std::string agree_on_run_id(Communicator& communicator);

}  // namespace libtrain::detail
