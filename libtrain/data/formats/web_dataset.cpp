#include <libtrain/data/formats/web_dataset.hpp>

#include <set>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/detail/location.hpp>

namespace libtrain::data {

namespace {

bool is_meta(std::string_view name) {
  const std::string_view first = name.substr(0, name.find('/'));
  return first.size() >= 4 && first.starts_with("__") && first.ends_with("__");
}

}  // namespace

std::optional<WebDatasetName> split_web_dataset_name(std::string_view name) {
  if (is_meta(name)) return std::nullopt;
  const std::size_t slash = name.rfind('/');
  const std::size_t last_part = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = name.find('.', last_part);
  if (dot == std::string_view::npos || dot == last_part) return std::nullopt;
  return WebDatasetName{.key = name.substr(0, dot), .extension = detail::lower_case(name.substr(dot + 1))};
}

WebDatasetShard::WebDatasetShard(TarFile archive) : archive_(std::move(archive)) {
  std::string_view key;
  std::set<std::string> extensions;
  for (std::uint64_t member = 0; member < archive_.size(); ++member) {
    auto name = split_web_dataset_name(archive_.member_name(member));
    if (!name) continue;
    if (begins_.empty() || name->key != key) {
      begins_.push_back(members_.size());
      key = name->key;
      extensions.clear();
    }
    if (extensions.contains(name->extension)) {
      throw EnvironmentError(text(archive_.describe(member), ": expected an extension that sample '", key,
                                  "' does not have yet, found '", name->extension, "' again."));
    }
    extensions.insert(std::move(name->extension));
    members_.push_back(member);
  }
}

std::size_t WebDatasetShard::begin(std::uint64_t sample) const {
  if (sample >= size()) {
    throw UsageError(
        text("Sample ", sample, " of the shard '", name(), "' was requested, but it has ", size(), " samples."));
  }
  return begins_[sample];
}

std::size_t WebDatasetShard::end(std::uint64_t sample) const {
  return sample + 1 < size() ? begins_[sample + 1] : members_.size();
}

std::string WebDatasetShard::extension_of(std::size_t position) const {
  auto name = split_web_dataset_name(archive_.member_name(members_[position]));
  return name ? std::move(name->extension) : std::string{};
}

std::string_view WebDatasetShard::key(std::uint64_t sample) const {
  const auto name = split_web_dataset_name(archive_.member_name(members_[begin(sample)]));
  return name ? name->key : std::string_view{};
}

std::vector<std::string> WebDatasetShard::extensions(std::uint64_t sample) const {
  std::vector<std::string> result;
  for (std::size_t position = begin(sample); position < end(sample); ++position) {
    result.push_back(extension_of(position));
  }
  return result;
}

std::optional<std::uint64_t> WebDatasetShard::find(std::uint64_t sample, std::string_view extension) const {
  for (std::size_t position = begin(sample); position < end(sample); ++position) {
    if (extension_of(position) == extension) return members_[position];
  }
  return std::nullopt;
}

void WebDatasetShard::read(std::uint64_t sample, std::string_view extension, std::string& data) const {
  const auto member = find(sample, extension);
  if (!member) {
    throw EnvironmentError(text("Tar file '", name(), "', sample '", key(sample),
                                "': expected a member with extension '", extension, "', found '",
                                join(extensions(sample), "', '"), "'."));
  }
  archive_.read(*member, data);
}

}  // namespace libtrain::data
