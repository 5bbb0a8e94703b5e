#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/data/formats/detail/tf_example.hpp>
#include <libtrain/data/sources/image_source.hpp>
#include <libtrain/data/stage_clock.hpp>
#include <libtrain/data/storage/detail/local_storage.hpp>

#include <tests/data/formats/record_bytes.hpp>
#include <tests/data/formats/tar_bytes.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::test {

/// An image's bytes and its label.
using Labelled = std::pair<std::string, std::int64_t>;

/// The names of files and their content.
using Members = std::vector<std::pair<std::string, std::string>>;

/// A folder that data sets are written to, and its storage. Folders on the way to a file are made.
class SetFolder {
 public:
  std::string path() const { return folder_.path(); }

  std::shared_ptr<const data::Storage> storage() const {
    return std::make_shared<const data::detail::LocalStorage>(path());
  }

  void write(const std::string& name, const std::string& bytes) const {
    const std::string path = folder_ / name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    write_file(path, bytes);
  }

 private:
  TemporaryFolder folder_;
};

/// As the writers of ImageNet make them.
inline std::string example_of(const std::string& image, std::int64_t label) {
  data::detail::TfExample example;
  example.features["image/encoded"] = data::detail::TfBytesList{image};
  example.features["image/class/label"] = data::detail::TfInt64List{label};
  return data::detail::serialize_tf_example(example);
}

/// The bytes of a TFRecord file of such examples.
inline std::string tf_record_file(const std::vector<Labelled>& images) {
  std::string bytes;
  for (const auto& [image, label] : images) bytes += data::framed(example_of(image, label));
  return bytes;
}

/// The bytes of a tar archive.
inline std::string tar_file(const Members& members) {
  std::string bytes;
  for (const auto& [name, content] : members) bytes += data::tar_member({.name = name, .data = content});
  return bytes + data::tar_end();
}

/// The bytes of an archive in WebDataset's layout: 0.jpg, 0.cls, 1.jpg, and so on.
inline std::string web_dataset_file(const std::vector<Labelled>& images) {
  Members members;
  for (const auto& [image, label] : images) {
    const std::string key = std::to_string(members.size() / 2);
    members.emplace_back(key + ".jpg", image);
    members.emplace_back(key + ".cls", std::to_string(label));
  }
  return tar_file(members);
}

inline Labelled image_of(const data::ImageSource& source, std::uint64_t index) {
  data::EncodedImage image;
  source.read(index, image);
  return {image.bytes, image.label};
}

inline std::vector<Labelled> all_of(const data::ImageSource& source) {
  std::vector<Labelled> images;
  for (std::uint64_t i = 0; i < source.size(); ++i) images.push_back(image_of(source, i));
  return images;
}

/// What is said of an image that cannot be read.
inline std::string read_message(const data::ImageSource& source, std::uint64_t index) {
  return message_of<EnvironmentError>([&] { image_of(source, index); });
}

/// The bytes that reading the image counts.
inline std::uint64_t bytes_counted(const data::ImageSource& source, std::uint64_t index) {
  data::StageClock clock;
  image_of(source, index);
  return clock.counts().bytes;
}

}  // namespace libtrain::test
