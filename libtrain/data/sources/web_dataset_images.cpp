#include <libtrain/data/sources/web_dataset_images.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/sources/shard_files.hpp>
#include <libtrain/data/sources/source_checks.hpp>
#include <libtrain/data/storage/detail/location.hpp>

namespace libtrain::data {

namespace {

constexpr std::uint64_t kLongestLabel = 100;  // with the white space around it

WebDatasetImagesOptions in_lower_case(WebDatasetImagesOptions options) {
  if (options.image_extensions.empty()) {
    throw UsageError("image_extensions is empty. Name the extensions of images, such as \"jpg\".");
  }
  for (auto& extension : options.image_extensions) extension = detail::lower_case(extension);
  options.label_extension = detail::lower_case(options.label_extension);
  return options;
}

std::optional<std::uint64_t> find_first(const WebDatasetShard& shard, std::uint64_t sample,
                                        const std::vector<std::string>& extensions) {
  for (const auto& extension : extensions) {
    if (const auto member = shard.find(sample, extension)) return member;
  }
  return std::nullopt;
}

std::uint64_t require_first(const WebDatasetShard& shard, std::uint64_t sample,
                            const std::vector<std::string>& extensions) {
  if (const auto member = find_first(shard, sample, extensions)) return *member;
  throw EnvironmentError(text("Tar file '", shard.name(), "', sample '", shard.key(sample),
                              "': expected a member with extension '", join(extensions, "' or '"), "', found '",
                              join(shard.extensions(sample), "', '"), "'."));
}

void require_short_label(const TarFile& archive, std::uint64_t member) {
  if (archive.bytes(member) > kLongestLabel) {
    throw EnvironmentError(text(archive.describe(member), ": expected a label of at most ", kLongestLabel,
                                " bytes, found ", archive.bytes(member), "."));
  }
}

std::int64_t require_label(const TarFile& archive, std::uint64_t member, std::string_view content) {
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  const std::size_t begin = std::min(content.find_first_not_of(kSpace), content.size());
  const auto digits = content.substr(begin, content.find_last_not_of(kSpace) + 1 - begin);
  if (const auto label = parse_integer(digits, 0, INT64_MAX)) return *label;
  throw EnvironmentError(
      text(archive.describe(member), ": expected a label, a decimal integer of 0 or more, found '", content, "'."));
}

}  // namespace

WebDatasetImages::WebDatasetImages(std::shared_ptr<const Storage> storage, const WebDatasetImagesOptions& options)
    : storage_(detail::require_storage(std::move(storage))),
      options_(in_lower_case(options)),
      shards_(open_shards()),
      table_(detail::describe(*storage_, options_.folder), detail::sizes_of(shards_)) {}

std::vector<WebDatasetShard> WebDatasetImages::open_shards() {
  const auto open = [](std::unique_ptr<const File> file, const ShardOptions& shard) {
    return WebDatasetShard(TarFile(std::move(file), shard));
  };
  return detail::open_shards(*storage_, options_, detail::ShardKind::tar, classes_, open);
}

void WebDatasetImages::read(std::uint64_t index, EncodedImage& image) const {
  const auto place = table_.place(index);
  const WebDatasetShard& shard = shards_[place.shard];
  const TarFile& archive = shard.archive();
  const auto member = require_first(shard, place.position, options_.image_extensions);
  const auto label = require_first(shard, place.position, {options_.label_extension});
  require_short_label(archive, label);
  std::string label_text;
  archive.read(member, image.bytes, label, label_text);
  image.label = require_label(archive, label, label_text);
  classes_.require(image.label, [&] { return archive.describe(label); });
}

SampleOrigin WebDatasetImages::origin(std::uint64_t index) const {
  const auto place = table_.place(index);
  const WebDatasetShard& shard = shards_[place.shard];
  auto member = find_first(shard, place.position, options_.image_extensions);
  if (!member) member = find_first(shard, place.position, shard.extensions(place.position));
  const TarFile& archive = shard.archive();
  return {.path = shard.name(), .offset = archive.offset(member.value()), .bytes = archive.bytes(member.value())};
}

}  // namespace libtrain::data
