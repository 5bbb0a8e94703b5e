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

/// The folder for a set of files that appear in it together. Until they are published they lie in a folder below it,
/// under names that nobody takes for theirs; without publish() nothing of them is left.
class OutputFolder {
 public:
  /// Makes the folder and those above it where they are missing. Throws UsageError where it is not empty and `policy`
  /// refuses that, EnvironmentError where it cannot be made or another process is at work in it.
  OutputFolder(std::filesystem::path path, NotEmpty policy);

  OutputFolder(const OutputFolder&) = delete;  // owns the files that are not published
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// Removes what is not published, and the folder where it was made here and is empty.
  ~OutputFolder();

  /// Where to write the file that publish() will give this name.
  std::string add(std::string name);

  /// Removes the files of the folder whose names `is_obsolete` accepts, and gives all files their names, in the order
  /// in which they were added. None is ever seen incomplete; a process that is killed between two names leaves some of
  /// the files without theirs. Throws EnvironmentError.
  void publish(const std::function<bool(const std::string&)>& is_obsolete);

 private:
  std::string staged(std::size_t file) const;
  void require_empty() const;
  void remove_obsolete(const std::function<bool(const std::string&)>& is_obsolete) const;

  std::filesystem::path path_;
  bool is_new_;
  std::optional<StagingFolder> staging_;
  std::vector<std::string> names_;
};

}  // namespace libtrain::pack
