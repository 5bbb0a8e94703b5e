#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/base/error.hpp>

namespace libtrain {

/// The bytes of one tensor in a file of a checkpoint. Damage is reported by the tensor's name.
struct CheckpointTensor {
  std::string name = {};
  std::uint64_t offset = 0;  ///< from the beginning of the file, in bytes
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0;

  bool operator==(const CheckpointTensor&) const = default;
};

/// A complete file of a checkpoint.
struct CheckpointFile {
  std::string name = {};
  std::uint64_t bytes = 0;
  std::uint32_t crc32c = 0;                    ///< of the whole file
  std::vector<CheckpointTensor> tensors = {};  ///< those the writer named; may be empty

  bool operator==(const CheckpointFile&) const = default;
};

/// What a checkpoint contains and where it comes from: its file manifest.json (docs/checkpoints.md has the format).
struct CheckpointManifest {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  int world_size = 1;
  std::string libtrain_version = {};      ///< filled in by CheckpointWriter
  std::string torch_version = {};         ///< likewise: the LibTorch that libtrain was built with
  std::int64_t time = 0;                  ///< likewise: seconds since 1970, for people; nothing is decided by it
  std::vector<std::string> run_ids = {};  ///< likewise: the runs that led to it, oldest first; the last one wrote it
  std::map<std::string, double> metrics = {};  ///< such as "accuracy"; values that are not finite are not stored
  std::string configuration = "{}";  ///< of the run: a JSON object. Secrets in it are masked when it is stored.
  std::vector<CheckpointFile> files = {};

  bool operator==(const CheckpointManifest&) const = default;
};

/// A file of a checkpoint, or its manifest, is missing or not as it was written. Another checkpoint can be used.
class CheckpointDamagedError : public EnvironmentError {
 public:
  using EnvironmentError::EnvironmentError;
};

/// The manifest has a format version that this libtrain does not know. Not damage: a newer libtrain reads it.
class CheckpointVersionError : public EnvironmentError {
 public:
  using EnvironmentError::EnvironmentError;
};

/// Whether a checkpoint may contain a file of this name: 1 to 200 letters, digits, '.', '_' and '-', not beginning with
/// a '.', and not the manifest's own name.
bool is_checkpoint_file_name(std::string_view name);

/// The bytes of manifest.json. Throws UsageError if a value cannot be stored: a negative number, a file name that is
/// not allowed or occurs twice, tensors outside their file, text that is not UTF-8, a configuration that is not a JSON
/// object.
std::string to_text(const CheckpointManifest& manifest);

/// Parses the bytes of manifest.json; `name` is its path for messages. Memory is proportional to the text. Throws
/// CheckpointVersionError for a newer version, and CheckpointDamagedError, which says what is wrong, for all else that
/// to_text() would not write.
CheckpointManifest parse_checkpoint_manifest(std::string_view text, const std::string& name);

/// File entries as one string, which a rank sends to the rank that commits.
std::string to_text(const std::vector<CheckpointFile>& files);
std::vector<CheckpointFile> parse_checkpoint_files(std::string_view text);

namespace detail {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr std::uint64_t kLongestManifest = std::uint64_t{64} << 20;

}  // namespace detail

}  // namespace libtrain
