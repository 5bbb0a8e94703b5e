#pragma once

#include <string>
#include <string_view>

namespace libtrain::data::detail {

/// Whether `path` leads to something below where it begins: parts joined by single slashes, none of them "." or "..",
/// no zero byte. Paths come from files and from what stores list, which are not trusted: none leads out.
bool leads_below(std::string_view path);

/// Throws EnvironmentError that names both unless `path` leads from `root` to something below it.
void require_path_below(const std::string& root, std::string_view path);

}  // namespace libtrain::data::detail
