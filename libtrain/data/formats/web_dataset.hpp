#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/data/formats/tar.hpp>

namespace libtrain::data {

/// The two parts of the name of a member of a WebDataset shard: the path up to the first dot of its last component, and
/// the extension after that dot, in lower case (ASCII).
struct WebDatasetName {
  std::string_view key = {};
  std::string extension = {};
};

/// std::nullopt for a name whose last component has no dot or begins with one, and for `__meta__` names, whose first
/// component both begins and ends with two underscores: such members belong to no sample.
std::optional<WebDatasetName> split_web_dataset_name(std::string_view name);

/// One tar archive in WebDataset's layout (github.com/webdataset/webdataset, tariterators.py): consecutive members with
/// the same key form a sample, such as "000/17.jpg" and "000/17.cls". A sample never continues in another shard.
/// Immutable: any thread may read, several at once.
class WebDatasetShard {
 public:
  /// Throws EnvironmentError that names archive, member and offset if a sample has an extension twice.
  explicit WebDatasetShard(TarFile archive);

  const std::string& name() const { return archive_.name(); }

  /// The archive; its member numbers are those that find() returns.
  const TarFile& archive() const { return archive_; }

  /// The number of samples.
  std::uint64_t size() const { return begins_.size(); }

  /// The key of sample number `sample`; samples that are not adjacent may have the same key. Throws UsageError unless
  /// `sample` < size().
  std::string_view key(std::uint64_t sample) const;

  /// The extensions of a sample in the order of the archive. Throws as key().
  std::vector<std::string> extensions(std::uint64_t sample) const;

  /// The member with this extension (in lower case, without a dot); std::nullopt if there is none. Throws as key().
  std::optional<std::uint64_t> find(std::uint64_t sample, std::string_view extension) const;

  /// Reads the content of that member into `data`. Throws EnvironmentError that names the sample and its extensions if
  /// this one is missing, and what TarFile::read throws.
  void read(std::uint64_t sample, std::string_view extension, std::string& data) const;

 private:
  std::size_t begin(std::uint64_t sample) const;
  std::size_t end(std::uint64_t sample) const;
  std::string extension_of(std::size_t position) const;

  TarFile archive_;
  std::vector<std::uint64_t> members_;  // that belong to a sample, sample by sample
  std::vector<std::size_t> begins_;     // of each sample in members_
};

}  // namespace libtrain::data
