#include <bench/loader_data.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <system_error>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/detail/tf_example.hpp>
#include <libtrain/data/formats/tar.hpp>
#include <libtrain/data/formats/tf_record.hpp>
#include <libtrain/data/image/detail/restart.hpp>
#include <libtrain/data/sources/open_image_source.hpp>
#include <libtrain/data/storage/open_storage.hpp>

namespace libtrain::bench {

namespace {

constexpr int kRestartInterval = 4;  // MCUs
constexpr std::size_t kKeyDigits = 8;

enum class RestartMarkers { none, added };

std::string key_of(std::uint64_t index) {
  const std::string digits = std::to_string(index);
  return std::string(kKeyDigits - std::min(kKeyDigits, digits.size()), '0') + digits;
}

std::string with_restart_markers(const std::string& jpeg, const std::string& name) {
  const auto marked =
      data::detail::add_restart_markers(std::as_bytes(std::span{jpeg}), {.name = name, .interval = kRestartInterval});
  if (!marked) {
    throw EnvironmentError(text("Photograph '", name, "' takes no restart markers: expected a baseline JPEG that has ",
                                "none yet; take it out, or let bench/make_photographs.py make others."));
  }
  return {reinterpret_cast<const char*>(marked->data()), marked->size()};
}

void write_tar(const data::ImageSource& source, const std::string& path, RestartMarkers markers) {
  data::TarWriter writer{path};
  data::EncodedImage image;
  for (std::uint64_t index = 0; index < source.size(); ++index) {
    source.read(index, image);
    if (markers == RestartMarkers::added) image.bytes = with_restart_markers(image.bytes, source.origin(index).path);
    writer.add(key_of(index) + ".jpg", image.bytes);
    writer.add(key_of(index) + ".cls", std::to_string(image.label));
  }
  writer.finish();
}

void write_tf_records(const data::ImageSource& source, const std::string& path) {
  data::TfRecordWriter writer{path};
  data::EncodedImage image;
  for (std::uint64_t index = 0; index < source.size(); ++index) {
    source.read(index, image);
    data::detail::TfExample example;
    example.features["image/encoded"] = data::detail::TfBytesList{image.bytes};
    example.features["image/class/label"] = data::detail::TfInt64List{image.label};
    writer.write(data::detail::serialize_tf_example(example));
  }
  writer.finish();
}

void write_once(const std::string& path, const std::function<void()>& write) {
  const std::filesystem::path file{path};
  std::error_code error;
  if (std::filesystem::exists(file, error)) return;
  std::filesystem::create_directories(file.parent_path(), error);
  if (error) {
    throw EnvironmentError(
        text("Folder '", file.parent_path().string(), "' cannot be made: ", error.message(), "; choose another one."));
  }
  write();
}

void require_images(const LoaderData& files, const std::string& path, std::uint64_t count) {
  if (count == files.images) return;
  throw EnvironmentError(text("'", path, "' has ", count, " images, '", files.photographs, "' has ", files.images,
                              "; delete the former, so that it is made anew."));
}

}  // namespace

std::shared_ptr<const data::ImageSource> open_images(const std::string& folder) {
  return data::open_image_source(data::open_storage(folder));
}

LoaderData prepare_loader_data(const std::string& folder) {
  LoaderData files{.photographs = folder + "/photographs",
                   .shards = folder + "/shards",
                   .restart_shards = folder + "/restart_shards",
                   .tar = folder + "/shards/photographs.tar",
                   .tf_record = folder + "/records/photographs.tfrecord"};
  const auto source = open_images(files.photographs);
  files.images = source->size();

  const std::string restart_tar = files.restart_shards + "/photographs.tar";
  write_once(files.tar, [&] { write_tar(*source, files.tar, RestartMarkers::none); });
  write_once(restart_tar, [&] { write_tar(*source, restart_tar, RestartMarkers::added); });
  write_once(files.tf_record, [&] { write_tf_records(*source, files.tf_record); });

  require_images(files, files.shards, open_images(files.shards)->size());
  require_images(files, files.restart_shards, open_images(files.restart_shards)->size());
  require_images(files, files.tf_record, data::TfRecordFile{data::open_file(files.tf_record)}.size());
  return files;
}

}  // namespace libtrain::bench
