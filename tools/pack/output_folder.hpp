#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <tools/pack/staging_folder.hpp>

namespace libtrain::pack {

/// What to do with an output folder that holds something.
enum class NotEmpty { refuse, add_to };

/// Gives a file another name; throws where that fails.
using Rename = std::function<void(const std::filesystem::path& from, const std::filesystem::path& to)>;

/// std::filesystem::rename, with errors that are DiskError.
void rename_file(const std::filesystem::path& from, const std::filesystem::path& to);

/// The folder for a set of files that appear in it together, in the place of a former set. Until they are published
/// they lie in a folder below it, under names that nothing takes for theirs; without publish() nothing of them is left.
///
///   .packing/<number>      a new file
///   .packing/old-<number>  a file that goes, once publish() has begun
///   .packing/publishing    the names of both, as long as the folder holds neither set as a whole
///
/// `publishing` is on the disk before the first file gets another name, and goes after the last one. Former files go
/// before new ones come, so that the two are never mixed; and readers of shards refuse a folder that has it.
class OutputFolder {
 public:
  /// Makes the folder and those above it where they are missing, and puts the former files back where a process was
  /// ended while it published. Throws UsageError where it is not empty and `policy` refuses that, EnvironmentError
  /// where it cannot be made or another process is at work in it.
  OutputFolder(std::filesystem::path path, NotEmpty policy, Rename rename = rename_file);

  OutputFolder(const OutputFolder&) = delete;  // owns the files that are not published
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// Removes what is not published, and the folder where it was made here and is empty.
  ~OutputFolder();

  /// Where to write the file that publish() will give this name.
  std::string add(std::string name);

  /// Puts all files in the place of those of the folder whose names `is_obsolete` accepts, and of those that have the
  /// same names. Throws EnvironmentError with the former files in their places.
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
