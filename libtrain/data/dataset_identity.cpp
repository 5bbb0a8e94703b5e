#include <libtrain/data/dataset_identity.hpp>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include <libtrain/base/text.hpp>
#include <libtrain/data/indexed_dataset.hpp>
#include <libtrain/data/storage/content_hash.hpp>

namespace libtrain::data {

DatasetIdentity IndexedDataset::identity() const {
  DatasetIdentity lines{text(size(), " samples")};
  for (auto& line : detail::describe_samples(size(), "", [this](std::uint64_t index) { return origin(index); })) {
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace libtrain::data

namespace libtrain::data::detail {

namespace {

constexpr std::uint64_t kRuns = 1000;
constexpr std::uint64_t kSamplesOfARun = 2048;

std::string_view place_of(const std::string& path, const std::string& root) {
  const std::string_view whole = path;
  if (!root.empty() && path.starts_with(root)) {
    return whole.substr(std::min(whole.find_first_not_of('/', root.size()), whole.size()));
  }
  const std::size_t name = whole.rfind('/');
  if (name == std::string_view::npos || name == 0) return whole;
  return whole.substr(whole.rfind('/', name - 1) + 1);
}

}  // namespace

DatasetIdentity describe_samples(std::uint64_t size, const std::string& root,
                                 const std::function<SampleOrigin(std::uint64_t index)>& origin) {
  DatasetIdentity lines;
  const std::uint64_t run = size / kRuns + 1;
  const std::uint64_t stride = (run - 1) / kSamplesOfARun + 1;
  for (std::uint64_t begin = 0; begin < size; begin += std::min(run, size - begin)) {
    const std::uint64_t end = begin + std::min(run, size - begin);
    ContentHasher hasher;
    std::string first;
    for (std::uint64_t index = begin; index < end; index += std::min(stride, end - index)) {
      const SampleOrigin found = origin(index);
      const std::string_view place = place_of(found.path, root);
      if (index == begin) first = text("'", place, "'", found.offset == 0 ? "" : text(" at byte ", found.offset));
      hasher.update(place);
      hasher.update('\n' + std::to_string(found.offset) + ' ' + std::to_string(found.bytes) + '\n');
    }
    const std::string samples = end - begin == 1 ? text("sample ", begin) : text("samples ", begin, " to ", end - 1);
    lines.push_back(text(samples, ", first ", first, ", checksum ", to_string(hasher.digest())));
  }
  return lines;
}

std::uint64_t digest_of(const DatasetIdentity& identity) {
  ContentHasher hasher;
  for (const auto& line : identity) hasher.update(text(line.size(), " ", line, "\n"));
  return std::max<std::uint64_t>(hasher.digest().low, 1);
}

std::string summary_of(const DatasetIdentity& identity) {
  constexpr std::size_t kLongest = 200;
  constexpr std::size_t kMax = 3;
  std::vector<std::string> lines;
  for (std::size_t index = 0; index < identity.size(); ++index) {
    if (index + 1 < kMax || index + 1 == identity.size()) lines.push_back(identity[index].substr(0, kLongest));
  }
  return join(lines, "; ");
}

}  // namespace libtrain::data::detail
