#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <tools/pack/staging_folder.hpp>

namespace libtrain::pack {

/// What to do with an output folder that is not empty.
enum class NotEmpty { refuse, add_to };

/// Renames a file; throws if that fails.
using Rename = std::function<void(const std::filesystem::path& from, const std::filesystem::path& to)>;

/// std::filesystem::rename that throws DiskError.
void rename_file(const std::filesystem::path& from, const std::filesystem::path& to);

/// A folder in which a set of files appears together and replaces a previous set. Until publish() the files are in a
/// subfolder under names that no reader recognizes; without publish() they are removed.
///
///   .packing/<number>      a new file
///   .packing/old-<number>  a replaced file, during publish()
///   .packing/publishing    the names of both, while the folder contains neither complete set
///
/// `publishing` is on the disk before the first file is renamed, and is removed after the last. Old files are moved
/// away before new ones are moved in, so that the sets are never mixed; readers of shards refuse a folder with that
/// file.
class OutputFolder {
 public:
  /// Creates the folder and its parents if they do not exist, and restores the previous files if a process was killed
  /// while it published. Throws UsageError if the folder is not empty and `policy` refuses that, EnvironmentError if it
  /// cannot be created or another process uses it.
  OutputFolder(std::filesystem::path path, NotEmpty policy, Rename rename = rename_file);

  OutputFolder(const OutputFolder&) = delete;  // owns the unpublished files
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// Removes unpublished files, and the folder if this object created it and it is empty.
  ~OutputFolder();

  /// The path to write the file to; publish() gives it this name.
  std::string add(std::string name);

  /// Replaces the files of the folder whose names `is_obsolete` accepts, or that have the name of a new file, by the
  /// new files. If it throws EnvironmentError, the previous files have been restored.
  void publish(const std::function<bool(const std::string&)>& is_obsolete);

 private:
  struct Names {
    std::vector<std::string> old = {};
    std::vector<std::string> added = {};
  };

  std::filesystem::path staged(std::size_t file) const;
  std::filesystem::path set_aside(std::size_t file) const;
  std::filesystem::path plan() const;
  void require_empty() const;
  Names names_of(const std::function<bool(const std::string&)>& is_obsolete) const;
  void write_plan(const Names& names) const;
  Names read_plan() const;
  void exchange(const Names& names) const;
  void roll_back(const Names& names) const;
  void end_plan() const;

  std::filesystem::path path_;
  Rename rename_;
  bool is_new_;
  std::optional<StagingFolder> staging_;
  std::vector<std::string> names_;
};

}  // namespace libtrain::pack
