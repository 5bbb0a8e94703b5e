#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <bench/loader_data.hpp>
#include <libtrain/observe/record.hpp>

namespace libtrain::bench {

/// What a round went through.
struct LoaderPass {
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;  ///< as they are stored: compressed images
};

/// Work of a loader that is done again and again on the same data.
class LoaderWorkload {
 public:
  virtual ~LoaderWorkload() = default;

  /// Does all of it once, untimed and before the first run(), and says in `record` what it gives.
  virtual void warm_up(Record& record) = 0;

  /// Does it once.
  virtual LoaderPass run() = 0;
};

/// All names that make_loader_workload() knows.
const std::vector<std::string>& loader_workload_names();

/// Throws UsageError for another name.
///
/// Pictures, 224 x 224, normalised, in float16 and channels last, in batches of 64 from a DataLoader with `threads`
/// workers:
///   random_resized_crop      of the folder's photographs: a random resized crop, flipped or not
///   decode_then_crop         the same pictures, but each photograph is decoded as a whole before it is cropped
///   shards                   as random_resized_crop, from the tar archive
///   restart_shards           the same from the one with restart markers
/// Bytes of a file in the page cache, entry by entry or in blocks, in `threads` threads; its index is there already:
///   tar_read                 every member
///   tar_plain_read           no more than pread(2) of 1 MiB after another
///   tfrecord_read            every record, its checksum verified
///   tfrecord_read_unchecked  every record
///   tfrecord_plain_read      as tar_plain_read
std::unique_ptr<LoaderWorkload> make_loader_workload(const std::string& name, int threads, const LoaderData& files);

}  // namespace libtrain::bench
