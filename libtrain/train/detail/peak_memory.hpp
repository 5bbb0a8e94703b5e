#pragma once

#include <cstdint>

#include <libtrain/comm/communicator.hpp>

namespace libtrain::detail {

/// The most memory, in bytes, that any rank has had resident. All ranks must call it.
std::int64_t peak_rss_of_ranks(Communicator& communicator);

}  // namespace libtrain::detail
