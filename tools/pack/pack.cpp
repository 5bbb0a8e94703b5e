#include <tools/pack/pack.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <numeric>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/base/output_file.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/detail/permutation.hpp>
#include <libtrain/data/formats/image_folder.hpp>
#include <libtrain/data/formats/shard_index.hpp>
#include <libtrain/data/formats/tar.hpp>
#include <libtrain/data/formats/tf_record.hpp>
#include <libtrain/data/sources/shard_files.hpp>
#include <libtrain/data/storage/detail/local_storage.hpp>
#include <libtrain/data/storage/file.hpp>
#include <libtrain/data/storage/open_storage.hpp>
#include <libtrain/data/storage/storage.hpp>
#include <libtrain/observe/progress.hpp>

#include <tools/common/ordered_prefetcher.hpp>
#include <tools/pack/coco_set.hpp>
#include <tools/pack/output_folder.hpp>
#include <tools/pack/sample_encoder.hpp>
#include <tools/pack/shard_name.hpp>
#include <tools/pack/shard_plan.hpp>
#include <tools/pack/shard_writer.hpp>

namespace libtrain::pack {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLongestImageFile = std::uint64_t{1} << 30;
constexpr std::uint64_t kAheadPerThread = 4;
constexpr const char* kClasses = "classes.txt";

// An encoded image, or the reason why there is none.
struct PreparedSample {
  EncodedSample image = {};
  std::uint64_t bytes_read = 0;
  std::string damage = {};  // empty if the image is good
};

std::vector<std::size_t> order_of(const data::ImageList& images, const PackOptions& options) {
  std::vector<std::size_t> order(images.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (options.order == SampleOrder::folder) return order;
  const data::detail::Permutation permutation{images.size(), options.shuffle_seed, 0};
  for (auto& image : order) image = static_cast<std::size_t>(permutation(image));
  return order;
}

std::vector<std::uint64_t> plan_of(const data::ImageList& images, const std::vector<std::size_t>& order,
                                   const PackOptions& options) {
  std::vector<std::uint64_t> bytes;
  bytes.reserve(order.size());
  for (const std::size_t image : order) bytes.push_back(stored_bytes(options.kind, images.bytes(image)));
  auto plan = plan_shards(bytes, options.plan);
  if (plan.size() <= kMaxShards) return plan;
  throw UsageError(text("--shard-bytes ", options.plan.shard_bytes, " makes ", plan.size(),
                        " shards, expected at most ", kMaxShards, ". Set a larger size."));
}

Progress::Options progress_options(const PackOptions& options) {
  Progress::Options result;
  if (options.quiet) result.output = Progress::Output::quiet;
  return result;
}

class Packing {
 public:
  /// `coco`, if it is not nullptr, is the set that has the images.
  Packing(const PackOptions& options, const data::Storage& storage, const data::ImageList& images,
          const CocoSet* coco = nullptr)
      : options_(options),
        storage_(storage),
        images_(images),
        coco_(coco),
        order_(order_of(images, options)),
        plan_(plan_of(images, order_, options)),
        progress_(progress_options(options)) {}

  /// Returns the names of the shards.
  std::vector<std::string> write_shards(OutputFolder& output) {
    const auto threads = static_cast<std::uint64_t>(options_.threads);
    tools::OrderedPrefetcher<PreparedSample> prepared(
        0, order_.size(), options_.threads, threads * kAheadPerThread,
        [this](std::uint64_t position, const std::stop_token&) { return prepare(static_cast<std::size_t>(position)); });
    progress_.begin_epoch({.number = 1, .count = 1, .steps = static_cast<std::int64_t>(order_.size())});
    std::vector<std::string> names;
    std::size_t position = 0;
    for (const std::uint64_t samples : plan_) {
      names.push_back(shard_name(options_.prefix, options_.kind, names.size(), plan_.size()));
      const auto path = output.add(names.back());
      const auto shard = coco_ == nullptr ? create_shard(options_.kind, path) : create_image_archive(path);
      const auto written = summary_.images;
      for (std::uint64_t i = 0; i < samples; ++i, ++position) {
        write(prepared.next().value(), position, *shard);
        show_progress(position + 1);
      }
      if (summary_.images == written) fail_empty(names.back());
      shard->finish();
      summary_.bytes_written += shard->bytes();
    }
    return names;
  }

  /// Everything except the time.
  PackSummary summary() const {
    PackSummary result = summary_;
    result.classes = coco_ == nullptr ? images_.classes().size() : coco_->categories;
    result.shards = plan_.size();
    result.unsupported = images_.skipped();
    return result;
  }

 private:
  // Called from several threads.
  PreparedSample prepare(std::size_t position) const {
    PreparedSample prepared;
    try {
      const auto file = storage_.open(std::string{images_.path(order_[position])});
      auto bytes = data::read_all(*file, kLongestImageFile);
      prepared.bytes_read = bytes.size();
      prepared.image = encode_sample(std::move(bytes), file->name(), options_.encoding);
      if (coco_ != nullptr) require_annotated_size(prepared.image, order_[position], file->name());
    } catch (const data::StorageUnavailable&) {
      throw;  // the error is not about the image
    } catch (const EnvironmentError& error) {
      prepared.damage = error.what();
    }
    return prepared;
  }

  void require_annotated_size(const EncodedSample& image, std::size_t number, const std::string& name) const {
    const auto& [width, height] = coco_->sizes[number];
    if (image.width == width && image.height == height) return;
    throw EnvironmentError(text("Image '", name, "' is ", image.width, " x ", image.height,
                                " pixels, but the annotations say ", width, " x ", height, "."));
  }

  // In the shard, by which annotations refer to the image.
  std::string_view name_of(std::size_t number) const {
    const auto path = images_.path(number);
    return coco_ == nullptr ? path : path.substr(options_.coco.size() + 1);
  }

  void write(const PreparedSample& prepared, std::size_t position, ShardWriter& shard) {
    if (!prepared.damage.empty()) return leave_out(prepared.damage);
    const std::size_t number = order_[position];
    const std::uint32_t label = images_.label(number);
    shard.add({.image = prepared.image,
               .number = position,
               .label = label,
               .class_name = images_.class_name(label),
               .path = name_of(number)});
    ++summary_.images;
    summary_.bytes_read += prepared.bytes_read;
    summary_.with_new_markers += prepared.image.has_new_markers ? 1 : 0;
    summary_.resized += prepared.image.is_resized ? 1 : 0;
    summary_.unchanged += prepared.image.is_unchanged() ? 1 : 0;
  }

  void leave_out(const std::string& damage) {
    if (coco_ != nullptr) {
      throw EnvironmentError(text(damage, " Repair that image, or remove it from the annotations."));
    }
    if (summary_.damaged == options_.skip_damaged) {
      throw EnvironmentError(text(damage, " Repair or remove that image, or set --skip-damaged to more than ",
                                  options_.skip_damaged, " to leave it out."));
    }
    ++summary_.damaged;
    log_warning(text("An image is left out. ", damage));
  }

  // Readers refuse an empty shard.
  [[noreturn]] void fail_empty(const std::string& shard) const {
    throw EnvironmentError(text("All images of the shard '", shard,
                                "' are damaged and left out. Set fewer --shards or larger --shard-bytes",
                                options_.order == SampleOrder::folder ? ", or --order shuffled" : "", "."));
  }

  void show_progress(std::size_t done) {
    const double images_per_s = static_cast<double>(done) / clock_.seconds();
    progress_.update(static_cast<std::int64_t>(done), {ProgressFigure{.value = images_per_s, .name = "images/s"}});
  }

  const PackOptions& options_;
  const data::Storage& storage_;
  const data::ImageList& images_;
  const CocoSet* coco_;
  const std::vector<std::size_t> order_;   // the image at each position of the shards
  const std::vector<std::uint64_t> plan_;  // samples of each shard
  Stopwatch clock_;
  PackSummary summary_;
  Progress progress_;
};

data::ImageList list_images(const data::Storage& storage, const PackOptions& options) {
  auto images = data::list_image_folder(storage, "", options.listing);
  if (images.size() == 0) {
    throw EnvironmentError(text("Image folder '", storage.name(),
                                "': expected at least one image, found none in any class. Check --input."));
  }
  for (const auto& name : images.classes()) {
    if (name.find('\n') == std::string::npos) continue;
    throw EnvironmentError(text("Image folder '", storage.name(),
                                "': expected class names without line breaks, found '", name.substr(0, name.find('\n')),
                                "' and more lines. Rename that folder."));
  }
  return images;
}

// The other shards of a folder, such as those of another split, keep their labels, whose meaning is in classes.txt.
void require_classes_of_other_shards(const data::ImageList& images, const PackOptions& options) {
  const data::detail::LocalStorage folder{options.output};
  std::string other;
  bool has_classes = false;
  for (const auto& file : folder.list("")) {
    if (file.path == kClasses) has_classes = true;
    const auto kind = data::detail::shard_kind_of(file.path, "", "");
    const bool is_used = kind && kind != data::detail::ShardKind::parquet;  // by readers of these shards
    if (is_used && !is_shard_name(file.path, options.prefix, options.kind)) other = file.path;
  }
  if (!has_classes || other.empty()) return;
  const data::detail::ClassNames known{*folder.open(kClasses)};
  const auto& [before, now] = std::ranges::mismatch(known.names(), images.classes());
  if (before == known.names().end() && now == images.classes().end()) return;
  const auto shown = [](const auto& place, const auto& names) {
    return place == names.end() ? std::string{"absent"} : text('\'', *place, '\'');
  };
  throw UsageError(text("The output folder '", options.output, "' has other shards, such as '", other, "', for which ",
                        kClasses, " says that class ", before - known.names().begin(), " is ",
                        shown(before, known.names()), ", but in the input it is ", shown(now, images.classes()),
                        ". Choose another folder, or give both inputs the same class folders; --allow-empty-classes "
                        "accepts those without images."));
}

void write_classes(const data::ImageList& images, const std::string& path) {
  detail::OutputFile file(path);
  for (const auto& name : images.classes()) file.write(name + '\n');
  file.commit();
}

// Writes the index of each shard to the folder ".index" of `folder`, for runs that set ShardOptions::index_folder
// to it or to a copy. An index that cannot be written causes a warning.
void write_shard_indices(ShardKind kind, const std::string& folder, const std::vector<std::string>& shards) {
  const data::detail::LocalStorage storage{folder};
  for (const auto& shard : shards) {
    // Opening a shard for the first time writes its index.
    const data::ShardOptions options{.index_folder = folder + "/.index", .version = storage.info(shard).version};
    if (kind == ShardKind::tar) {
      const data::TarFile opened{storage.open(shard), options};
    } else {
      const data::TfRecordFile opened{storage.open(shard), options};
    }
  }
}

// Packs the images into the output folder, with what `add_files` adds. `commit` completes the set: it is called as soon
// as the shards have their names, because writing the indices takes time.
PackSummary pack_into(OutputFolder& output, const std::string& folder, Packing& packing, const PackOptions& options,
                      const std::function<void()>& add_files, const std::function<void()>& commit) {
  const auto shards = packing.write_shards(output);
  add_files();
  output.publish([&](const std::string& name) { return is_shard_name(name, options.prefix, options.kind); });
  commit();
  if (options.write_indices) write_shard_indices(options.kind, folder, shards);
  return packing.summary();
}

PackSummary pack_folder(const data::Storage& storage, const PackOptions& options) {
  if (data::detail::is_inside(options.output, storage)) {
    throw UsageError(text("The output folder '", options.output, "' is in the input folder '", storage.name(),
                          "', where it would be taken for a class. Choose another one."));
  }
  OutputFolder output{options.output, options.where_not_empty};
  const auto images = list_images(storage, options);
  require_classes_of_other_shards(images, options);
  Packing packing{options, storage, images};
  const auto add_classes = [&] { write_classes(images, output.add(kClasses)); };
  return pack_into(output, options.output, packing, options, add_classes, [] {});
}

PackSummary pack_coco(const data::Storage& storage, const PackOptions& options) {
  const auto folder = text(options.output, '/', options.coco);
  const fs::path annotations = text(options.output, '/', coco_annotations_path(options.coco));
  if (options.where_not_empty == NotEmpty::refuse && fs::exists(annotations)) {
    throw UsageError(text("The output folder '", options.output, "' has annotations already: '", annotations.string(),
                          "'. Choose another folder, or add --force to replace them."));
  }
  OutputFolder output{folder, options.where_not_empty};
  const auto set = list_coco_set(storage, options.coco);
  Packing packing{options, storage, set.images, &set};
  std::optional<detail::OutputFile> copy;
  const auto write_annotations = [&] {
    fs::create_directories(annotations.parent_path());
    copy.emplace(annotations.string());
    copy->write(set.annotations);
  };
  // After the shards: without its annotations, a set is not read.
  return pack_into(output, folder, packing, options, write_annotations, [&] { copy->commit(); });
}

}  // namespace

PackSummary pack(const PackOptions& options) {
  const Stopwatch clock;
  const auto storage = data::open_storage(options.input);
  auto summary = options.coco.empty() ? pack_folder(*storage, options) : pack_coco(*storage, options);
  summary.seconds = clock.seconds();
  return summary;
}

}  // namespace libtrain::pack
