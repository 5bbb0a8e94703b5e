#pragma once

#include <cstdint>

#include <libtrain/comm/communicator.hpp>

namespace libtrain::detail {

/// The largest peak resident memory of a rank, in bytes. All ranks must call it.
std::int64_t peak_rss_of_ranks(Communicator& communicator);

}  // namespace libtrain::detail
