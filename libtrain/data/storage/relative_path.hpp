#pragma once

#include <string>
#include <string_view>

namespace libtrain::data::detail {

/// Throws EnvironmentError that names both unless `path` leads from `root` to something below it: parts joined by
/// single slashes, none of them "." or "..", no zero byte. Paths come from files, which are not trusted: none leads
/// out.
void require_path_below(const std::string& root, std::string_view path);

}  // namespace libtrain::data::detail
