#pragma once

#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include <libtrain/checkpoint/checkpoint_manifest.hpp>

namespace libtrain::detail {

// How ranks that write files of a checkpoint in the background tell rank 0, which commits it, what they have written:
// by small files in the folder of the begun checkpoint, because the training uses the communicator meanwhile.
//
//   rank-3.entries   the entries of rank 3's files
//   rank-3.failed    why rank 3 has failed
//
// Each gets its name by a rename, and rank 0 removes it.

/// Throws EnvironmentError.
void leave_entries(const std::filesystem::path& root, const std::string& begun, int rank,
                   const std::vector<CheckpointFile>& entries);

/// Returns false if rank 0 cannot be told. True if it has abandoned the checkpoint.
bool leave_failure(const std::filesystem::path& root, const std::string& begun, int rank, const std::string& reason);

/// Waits until ranks 1 to `world_size` - 1 have left theirs, and returns all entries. Throws EnvironmentError if a rank
/// has failed, or a stop is requested before all have left them.
std::vector<CheckpointFile> collect_entries(const std::filesystem::path& root, const std::string& begun, int world_size,
                                            const std::stop_token& stop);

}  // namespace libtrain::detail
