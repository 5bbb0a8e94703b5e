#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <libtrain/data/storage/file.hpp>

namespace libtrain::data::detail {

/// What the classes of a data set in shards are called, by label: the lines of the file `classes.txt` that
/// libtrain-pack writes beside them. Immutable: any thread may call it, several at once.
class ClassNames {
 public:
  /// Not known.
  ClassNames() = default;

  /// Reads the file. Throws as File::read_at; EnvironmentError that names file and offset as well for an empty line, a
  /// file without lines, and one longer than 64 MiB.
  explicit ClassNames(const File& file);

  /// Empty where they are not known.
  const std::vector<std::string>& names() const { return names_; }

  /// Throws EnvironmentError for a label of 0 or more that has no name, where names are known. `describe()`, called
  /// then alone, says where the label stands.
  template <typename Describe>
  void require(std::int64_t label, const Describe& describe) const {
    if (!names_.empty() && static_cast<std::uint64_t>(label) >= names_.size()) fail(label, describe());
  }

 private:
  [[noreturn]] void fail(std::int64_t label, const std::string& source) const;

  std::string file_;
  std::vector<std::string> names_;
};

}  // namespace libtrain::data::detail
