#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace libtrain::data::detail {

/// What an extended header of POSIX.1-2001 says about the members behind it; an empty value takes back what an earlier
/// header said.
struct PaxValues {
  std::optional<std::string> path = {};
  std::optional<std::string> size = {};  ///< bytes, in decimal
};

/// Reads the records "length keyword=value\n" of an extended header into `values`; other keywords than path and size
/// are ignored. Throws EnvironmentError that names `file` and the byte offset, of which `offset` is that of `records`,
/// for damaged records, and for those of a sparse file (GNU.sparse.*), which is not read.
void parse_pax(std::string_view records, const std::string& file, std::uint64_t offset, PaxValues& values);

/// One record. The length counts its own digits too.
std::string pax_record(std::string_view keyword, std::string_view value);

}  // namespace libtrain::data::detail
