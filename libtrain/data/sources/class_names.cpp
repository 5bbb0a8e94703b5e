#include <libtrain/data/sources/class_names.hpp>

#include <algorithm>
#include <cstddef>
#include <string_view>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

namespace {

constexpr std::uint64_t kLongestClassFile = std::uint64_t{64} << 20;

[[noreturn]] void fail_line(const File& file, std::size_t offset, std::string_view found) {
  throw EnvironmentError(text("File '", file.name(), "', byte offset ", offset,
                              ": expected the name of a class on every line, found ", found, "."));
}

std::vector<std::string> lines_of(const File& file) {
  const std::string content = read_all(file, kLongestClassFile);
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < content.size();) {
    const std::size_t end = std::min(content.find('\n', begin), content.size());
    std::string_view line = std::string_view{content}.substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) fail_line(file, begin, "an empty line");
    lines.emplace_back(line);
    begin = end + 1;
  }
  if (lines.empty()) fail_line(file, 0, "no line");
  return lines;
}

}  // namespace

ClassNames::ClassNames(const File& file) : file_(file.name()), names_(lines_of(file)) {}

void ClassNames::fail(std::int64_t label, const std::string& source) const {
  throw EnvironmentError(text(source, ": expected a label below ", names_.size(), ", as many names of classes as '",
                              file_, "' has, found ", label, "; correct the labels or that file."));
}

}  // namespace libtrain::data::detail
