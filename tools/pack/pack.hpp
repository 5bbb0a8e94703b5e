#pragma once

#include <cstddef>
#include <cstdint>

#include <tools/pack/pack_options.hpp>

namespace libtrain::pack {

/// What was packed.
struct PackSummary {
  std::uint64_t images = 0;
  std::size_t classes = 0;
  std::size_t shards = 0;
  std::uint64_t bytes_read = 0;     ///< of the images that were stored
  std::uint64_t bytes_written = 0;  ///< of the shards
  std::uint64_t with_new_markers = 0;
  std::uint64_t resized = 0;
  std::uint64_t unchanged = 0;  ///< stored byte for byte
  std::uint64_t damaged = 0;    ///< left out
  std::uint64_t unsupported = 0;
  double seconds = 0;
};

/// Packs an image folder. The shards and classes.txt appear together at the end; after an error nothing of them is
/// left. Memory: 4 encoded images a thread, what is needed to decode one for each thread, and about 100 bytes an image
/// of the folder. Shows its progress on standard error. Throws EnvironmentError for data that cannot be read, for
/// damaged images beyond those that may be left out, for a storage that fails, and for a disk that is full; UsageError
/// as OutputFolder and plan_shards() do.
PackSummary pack(const PackOptions& options);

}  // namespace libtrain::pack
