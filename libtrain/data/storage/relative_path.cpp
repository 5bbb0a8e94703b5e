#include <libtrain/data/storage/relative_path.hpp>

#include <algorithm>
#include <cstddef>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

bool leads_below(std::string_view path) {
  if (path.find('\0') != std::string_view::npos) return false;
  for (std::size_t begin = 0; begin <= path.size();) {
    const auto end = std::min(path.find('/', begin), path.size());
    const auto part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

void require_path_below(const std::string& root, std::string_view path) {
  if (leads_below(path)) return;
  std::string printable{path};
  std::replace(printable.begin(), printable.end(), '\0', '?');
  throw EnvironmentError(text("Path '", printable, "' below '", root,
                              "': expected parts joined by '/', none of them empty, '.' or '..'."));
}

}  // namespace libtrain::data::detail
