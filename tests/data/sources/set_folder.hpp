#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <libtrain/data/formats/tar_writer.hpp>
#include <libtrain/data/formats/tf_example.hpp>
#include <libtrain/data/formats/tf_record_writer.hpp>
#include <libtrain/data/sources/image_source.hpp>
#include <libtrain/data/storage/local_storage.hpp>

#include <tests/support/temporary_folder.hpp>

namespace libtrain::testing {

/// An image's bytes and its label.
using Labelled = std::pair<std::string, std::int64_t>;

/// A folder that data sets are written to, and its storage. Folders on the way to a file are made.
class SetFolder {
 public:
  std::string path() const { return folder_.path(); }

  std::shared_ptr<const data::Storage> storage() const { return std::make_shared<const data::LocalStorage>(path()); }

  void write(const std::string& name, const std::string& bytes) const { write_file(place(name), bytes); }

  void write_tar(const std::string& name, const std::vector<std::pair<std::string, std::string>>& members) const {
    data::TarWriter writer(place(name));
    for (const auto& [member, bytes] : members) writer.add(member, bytes);
    writer.finish();
  }

  void write_records(const std::string& name, const std::vector<std::string>& records) const {
    data::TfRecordWriter writer(place(name));
    for (const auto& record : records) writer.write(record);
    writer.finish();
  }

  std::string read(const std::string& name) const { return read_file(folder_ / name); }

 private:
  std::string place(const std::string& name) const {
    std::string path = folder_ / name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    return path;
  }

  TemporaryFolder folder_;
};

/// As the writers of ImageNet make them.
inline std::string example_of(const std::string& image, std::int64_t label) {
  data::TfExample example;
  example.features["image/encoded"] = data::TfBytesList{image};
  example.features["image/class/label"] = data::TfInt64List{label};
  return data::serialize_tf_example(example);
}

inline std::vector<Labelled> all_of(const data::ImageSource& source) {
  std::vector<Labelled> images;
  data::EncodedImage image;
  for (std::uint64_t i = 0; i < source.size(); ++i) {
    source.read(i, image);
    images.emplace_back(image.bytes, image.label);
  }
  return images;
}

/// Several threads at once, each in an order of its own, read what is expected.
inline void expect_from_threads(const data::ImageSource& source, const std::vector<Labelled>& expected) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kRounds = 20;
  const std::size_t size = expected.size();
  ASSERT_EQ(source.size(), size);
  std::latch start{static_cast<std::ptrdiff_t>(kThreads)};
  std::vector<std::jthread> threads;
  for (std::size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      data::EncodedImage image;
      start.arrive_and_wait();
      for (std::size_t i = 0; i < kRounds * size; ++i) {
        const std::size_t index = (i + thread * size / kThreads) % size;
        source.read(index, image);
        EXPECT_EQ(Labelled(image.bytes, image.label), expected[index]);
      }
    });
  }
}

}  // namespace libtrain::testing
