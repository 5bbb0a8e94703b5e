#include <libtrain/data/sources/tf_record_images.hpp>

#include <cstring>
#include <string_view>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/detail/tf_example.hpp>
#include <libtrain/data/sources/shard_files.hpp>
#include <libtrain/data/sources/source_checks.hpp>

namespace libtrain::data {

namespace {

std::int64_t label_of(const detail::TfExample& example, const TfRecordImagesOptions& options, std::string_view source) {
  const std::int64_t found = example.only_int64(options.label_key, source);
  std::int64_t label = 0;
  if (__builtin_add_overflow(found, options.label_offset, &label) || label < 0) {
    throw EnvironmentError(text(source, ": expected a label of 0 or more in the feature '", options.label_key,
                                "', found ", found, " to which the label offset ", options.label_offset, " is added."));
  }
  return label;
}

}  // namespace

TfRecordImages::TfRecordImages(std::shared_ptr<const Storage> storage, const TfRecordImagesOptions& options)
    : storage_(detail::require_storage(std::move(storage))),
      options_(options),
      shards_(open_shards()),
      table_(detail::describe(*storage_, options_.folder), detail::sizes_of(shards_)) {}

std::vector<TfRecordFile> TfRecordImages::open_shards() {
  const auto open = [this](std::unique_ptr<const File> file, const ShardOptions& shard) {
    return TfRecordFile(std::move(file), shard, options_.checksum);
  };
  return detail::open_shards(*storage_, options_, detail::ShardKind::tf_record, classes_, open);
}

void TfRecordImages::read(std::uint64_t index, EncodedImage& image) const {
  const auto place = table_.place(index);
  const TfRecordFile& shard = shards_[place.shard];
  shard.read(place.position, image.bytes);
  const std::string source = shard.describe(place.position);
  const detail::TfExample example = detail::parse_tf_example(image.bytes, source);
  image.label = label_of(example, options_, source);
  classes_.require(image.label, [&] { return source; });
  // Move the image to the beginning of the record's memory.
  const std::string_view encoded = example.only_bytes(options_.image_key, source);
  std::memmove(image.bytes.data(), encoded.data(), encoded.size());
  image.bytes.resize(encoded.size());
}

SampleOrigin TfRecordImages::origin(std::uint64_t index) const {
  const auto place = table_.place(index);
  const TfRecordFile& shard = shards_[place.shard];
  return {.path = shard.name(), .offset = shard.offset(place.position), .bytes = shard.bytes(place.position)};
}

}  // namespace libtrain::data
