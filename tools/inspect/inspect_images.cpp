#include <tools/inspect/inspect.hpp>

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/data/formats/image_folder.hpp>
#include <libtrain/data/sources/detail/listed_storage.hpp>
#include <libtrain/data/sources/open_image_source.hpp>
#include <libtrain/data/sources/shard_files.hpp>
#include <libtrain/data/storage/open_storage.hpp>
#include <libtrain/observe/progress.hpp>

#include <tools/common/ordered_prefetcher.hpp>
#include <tools/inspect/class_facts.hpp>
#include <tools/inspect/contact_sheet.hpp>
#include <tools/inspect/image_check.hpp>
#include <tools/inspect/image_statistics.hpp>

namespace libtrain::inspect {

namespace {

constexpr data::ImageFolderOptions kListing{.skip_unsupported = true, .allow_empty_classes = true};
constexpr std::uint64_t kAheadPerThread = 4;

struct Shards {
  std::optional<data::detail::ShardKind> kind = {};  // std::nullopt for a folder of image files
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
};

Shards shards_among(const std::vector<data::FileInfo>& files, const std::string& prefix) {
  Shards shards;
  for (const auto& file : files) {
    const auto kind = data::detail::shard_kind_of(file.path, "", prefix);
    if (!kind) continue;
    shards.kind = kind;
    ++shards.count;
    shards.bytes += file.size;
  }
  return shards;
}

// The error of a loader if classes have no images; else empty.
std::string refusal_of(const data::Storage& storage, const std::vector<data::FileInfo>& files) {
  try {
    const auto subject = data::detail::image_folder_name(storage, "");
    data::detail::order_images(files, "", subject, {.skip_unsupported = true});
    return {};
  } catch (const EnvironmentError& error) {
    return error.what();
  }
}

// Returns the number of images of each class.
LabelCounts describe_folder(const std::string& name, const std::vector<data::FileInfo>& files, Json& facts) {
  const auto images = data::detail::order_images(files, "", name, kListing);
  LabelCounts labels;
  std::uint64_t bytes = 0;
  for (std::size_t image = 0; image < images.size(); ++image) {
    ++labels[std::int64_t{images.label(image)}];
    bytes += images.bytes(image);
  }
  facts["format"] = "image folder";
  facts["samples"] = images.size();
  facts["bytes"] = bytes;
  facts["unsupported"] = images.skipped();
  return labels;
}

void describe_shards(const Shards& shards, std::uint64_t samples, Json& facts) {
  facts["format"] = std::string{data::detail::name_of(*shards.kind)};
  facts["shards"] = shards.count;
  facts["samples"] = samples;
  facts["bytes"] = shards.bytes;
}

Progress::Options progress_options(const InspectOptions& options) {
  Progress::Options result;
  if (options.quiet || ::isatty(result.file_descriptor) == 0) result.output = Progress::Output::quiet;
  return result;
}

void check_images(const data::ImageSource& source, const InspectOptions& options, ImageStatistics& statistics,
                  std::vector<BadSample>& bad_samples) {
  tools::OrderedPrefetcher<CheckedImage> checked(
      0, source.size(), options.threads, static_cast<std::uint64_t>(options.threads) * kAheadPerThread,
      [&](std::uint64_t index, const std::stop_token&) { return check_image(source, index, options.check); });
  const Stopwatch clock;
  Progress progress(progress_options(options));
  progress.begin_epoch({.number = 1, .count = 1, .steps = static_cast<std::int64_t>(source.size())});
  for (std::uint64_t index = 0; index < source.size(); ++index) {
    const CheckedImage image = checked.next().value();
    statistics.add(index, image);
    if (!image.damage.empty()) {
      bad_samples.push_back({.index = index, .origin = source.origin(index), .reason = image.damage});
    }
    const double images_per_s = static_cast<double>(index + 1) / clock.seconds();
    progress.update(static_cast<std::int64_t>(index + 1), {ProgressFigure{.value = images_per_s, .name = "images/s"}});
  }
}

}  // namespace

Report inspect_images(const InspectOptions& options) {
  const std::shared_ptr<const data::Storage> storage = data::open_storage(options.data);
  const auto files = storage->list("");
  const auto source = data::open_image_source(std::make_shared<const data::detail::ListedStorage>(storage, "", files),
                                              {.prefix = options.prefix, .folder_images = {.listing = kListing}});
  Report report;
  Json sheet;
  if (options.sheet) sheet = write_contact_sheet(*source, *options.sheet);

  report.facts["data"] = source->name();
  const auto shards = shards_among(files, options.prefix);
  LabelCounts labels;
  if (shards.kind) {
    describe_shards(shards, source->size(), report.facts);
  } else {
    labels = describe_folder(storage->name(), files, report.facts);
    report.refusal = refusal_of(*storage, files);
  }
  ImageStatistics statistics;
  if (options.check != Check::none) check_images(*source, options, statistics, report.bad_samples);
  if (shards.kind) labels = statistics.labels();
  if (!labels.empty()) report.facts["classes"] = class_facts(labels, source->classes(), "samples");
  if (options.check != Check::none) statistics.describe(*source, options.check, report.facts);
  if (options.sheet) report.facts["contact_sheet"] = sheet;
  return report;
}

}  // namespace libtrain::inspect
