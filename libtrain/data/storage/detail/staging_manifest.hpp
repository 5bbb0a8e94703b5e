#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <libtrain/data/storage/content_hash.hpp>

namespace libtrain::data::detail {

/// A complete file of a staging folder, as it was in the storage.
struct StagedFile {
  std::uint64_t size = 0;
  std::string version = {};
  ContentHash hash = {};

  bool operator==(const StagedFile&) const = default;
};

/// By the path below the staged folder.
using StagedFiles = std::map<std::string, StagedFile>;

struct StagedTotals {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;

  bool operator==(const StagedTotals&) const = default;
};

/// A manifest is text: a head that names the source, a line per file, an end with the totals and the hash of all that
/// precedes. In paths and versions, '%', spaces and control characters are written as %XX. A journal is a manifest
/// without end, to which lines are added.
std::string manifest_head(const std::string& source);
std::string manifest_line(const std::string& path, const StagedFile& file);
std::string manifest_end(std::string_view all_before, const StagedTotals& totals);

/// The totals of a manifest of `source`; nothing for any other text: another source, no end, damage.
std::optional<StagedTotals> read_totals(std::string_view manifest, const std::string& source);

/// The files that a manifest or a journal of `source` names, up to the first line that is cut short or damaged; of
/// several lines for a path the last. None for any other text.
StagedFiles read_files(std::string_view journal, const std::string& source);

}  // namespace libtrain::data::detail
