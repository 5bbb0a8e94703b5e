#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain {

/// The values of `--stage`, `--cache` and `--cache-limit`; an empty folder means that the option is not used.
struct DataAccess {
  std::string stage;
  std::string cache;
  std::uint64_t cache_limit_bytes = std::numeric_limits<std::uint64_t>::max();
};

namespace detail {

/// The data at `location`, a local folder or a URI: copied to this node's disk, read through a cache there, or read
/// directly.
///
/// With a stage folder all ranks must call it: one process of each node copies, and it returns on all ranks once every
/// node has its copy; an error of one rank is thrown on all. `show` is called every few seconds with the progress of
/// this node. Throws as data::open_storage(), data::stage() and data::FileCache.
std::shared_ptr<const data::Storage> open_data(const std::string& location, const DataAccess& access,
                                               Communicator& communicator,
                                               const std::function<void(const std::string&)>& show);

}  // namespace detail

}  // namespace libtrain
