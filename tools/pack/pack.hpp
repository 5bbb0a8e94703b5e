#pragma once

#include <cstddef>
#include <cstdint>

#include <tools/pack/pack_options.hpp>

namespace libtrain::pack {

struct PackSummary {
  std::uint64_t images = 0;
  std::size_t classes = 0;
  std::size_t shards = 0;
  std::uint64_t bytes_read = 0;     ///< bytes of the images that were stored
  std::uint64_t bytes_written = 0;  ///< bytes of the shards
  std::uint64_t with_new_markers = 0;
  std::uint64_t resized = 0;
  std::uint64_t unchanged = 0;  ///< stored byte for byte
  std::uint64_t damaged = 0;    ///< left out
  std::uint64_t unsupported = 0;
  double seconds = 0;
};

/// Packs an image folder. The shards and classes.txt appear together at the end; after an error none of them exists.
/// Of a data set in COCO's layout, the shards appear in the folder of the split, and then a copy of its annotations.
/// Memory: for each thread 4 encoded images and one decoded, and about 100 bytes per image of the folder. Shows
/// progress on standard error. Throws EnvironmentError for data that cannot be read, for more damaged images than may
/// be left out, for an image of another size than its annotations say, for a storage that fails, and for a full disk;
/// UsageError as OutputFolder and plan_shards(), and if the folder has other shards, and a classes.txt with other
/// classes.
PackSummary pack(const PackOptions& options);

}  // namespace libtrain::pack
