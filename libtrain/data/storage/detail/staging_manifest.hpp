#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <libtrain/data/storage/content_hash.hpp>

namespace libtrain::data::detail {

/// The properties of a complete file of a staging folder in the storage.
struct StagedFile {
  std::uint64_t size = 0;
  std::string version = {};
  ContentHash hash = {};

  bool operator==(const StagedFile&) const = default;
};

/// Key: the path below the staged folder.
using StagedFiles = std::map<std::string, StagedFile>;

struct StagedTotals {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;

  bool operator==(const StagedTotals&) const = default;
};

/// A manifest is text: a head that names the source, a line per file, an end with the totals and the hash of everything
/// before. In paths and versions, '%', spaces and control characters are written as %XX. A journal is a manifest
/// without an end, to which lines are appended.
std::string manifest_head(const std::string& source);
std::string manifest_line(const std::string& path, const StagedFile& file);
std::string manifest_end(std::string_view all_before, const StagedTotals& totals);

/// The totals of a complete manifest of `source`; std::nullopt for another source, a missing end, or damage.
std::optional<StagedTotals> read_totals(std::string_view manifest, const std::string& source);

/// The files in a manifest or a journal of `source`, up to the first truncated or damaged line; of several lines for
/// one path the last one counts. Empty for any other text.
StagedFiles read_files(std::string_view journal, const std::string& source);

}  // namespace libtrain::data::detail
