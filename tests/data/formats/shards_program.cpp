// Reads and copies shards for shards_peer_test.py:
//
//   shards_program dump-records FILE          a line for every record and for every feature of its tf.train.Example
//   shards_program dump-members FILE          a line for every member
//   shards_program dump-samples FILE          a line for every sample of WebDataset and for every part of it
//   shards_program copy-records FROM TO       every example parsed, serialized and written again
//   shards_program copy-members FROM TO       every member read and written again
//
// Names and contents are printed in hexadecimal digits. Exit codes are those of libtrain.

#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/detail/tf_example.hpp>
#include <libtrain/data/formats/tar.hpp>
#include <libtrain/data/formats/tf_record.hpp>
#include <libtrain/data/formats/web_dataset.hpp>

#include <tests/data/memory_file.hpp>
#include <tests/support/run_program.hpp>

namespace {

namespace data = libtrain::data;

std::unique_ptr<const data::File> load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw libtrain::EnvironmentError(libtrain::text("Cannot open '", path, "'."));
  std::ostringstream content;
  content << file.rdbuf();
  return data::memory_file(content.str(), path);
}

std::string hexadecimal(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result = "=";
  for (const char byte : bytes) {
    const auto number = static_cast<unsigned char>(byte);
    result.push_back(kDigits[number >> 4]);
    result.push_back(kDigits[number & 15]);
  }
  return result;
}

void print_feature(const std::string& name, const data::detail::TfFeature& feature) {
  std::cout << "feature " << hexadecimal(name);
  if (const auto* values = std::get_if<data::detail::TfBytesList>(&feature)) {
    std::cout << " bytes";
    for (const auto value : *values) std::cout << ' ' << hexadecimal(value);
  } else if (const auto* numbers = std::get_if<data::detail::TfInt64List>(&feature)) {
    std::cout << " int64";
    for (const std::int64_t value : *numbers) std::cout << ' ' << value;
  } else {
    std::cout << " none";
  }
  std::cout << '\n';
}

void dump_records(const std::string& path) {
  const data::TfRecordFile file(load(path));
  std::string record;
  for (std::uint64_t i = 0; i < file.size(); ++i) {
    file.read(i, record);
    std::cout << "record " << file.offset(i) << ' ' << hexadecimal(record) << '\n';
    const data::detail::TfExample example = data::detail::parse_tf_example(record, file.describe(i));
    for (const auto& [name, feature] : example.features) print_feature(name, feature);
  }
}

void dump_members(const std::string& path) {
  const data::TarFile file(load(path));
  std::string content;
  for (std::uint64_t i = 0; i < file.size(); ++i) {
    file.read(i, content);
    std::cout << "member " << hexadecimal(file.member_name(i)) << ' ' << file.offset(i) << ' ' << hexadecimal(content)
              << '\n';
  }
}

void dump_samples(const std::string& path) {
  const data::WebDatasetShard shard{data::TarFile(load(path))};
  std::string content;
  for (std::uint64_t i = 0; i < shard.size(); ++i) {
    std::cout << "sample " << hexadecimal(shard.key(i)) << '\n';
    for (const auto& extension : shard.extensions(i)) {
      shard.read(i, extension, content);
      std::cout << "part " << hexadecimal(extension) << ' ' << hexadecimal(content) << '\n';
    }
  }
}

void copy_records(const std::string& from, const std::string& to) {
  const data::TfRecordFile file(load(from));
  data::TfRecordWriter writer(to);
  std::string record;
  for (std::uint64_t i = 0; i < file.size(); ++i) {
    file.read(i, record);
    writer.write(data::detail::serialize_tf_example(data::detail::parse_tf_example(record, file.describe(i))));
  }
  writer.finish();
}

void copy_members(const std::string& from, const std::string& to) {
  const data::TarFile file(load(from));
  data::TarWriter writer(to);
  std::string content;
  for (std::uint64_t i = 0; i < file.size(); ++i) {
    file.read(i, content);
    writer.add(file.member_name(i), content);
  }
  writer.finish();
}

void run(const std::vector<std::string>& words) {
  const std::string action = words.empty() ? "" : words[0];
  if (words.size() == 2 && action == "dump-records") return dump_records(words[1]);
  if (words.size() == 2 && action == "dump-members") return dump_members(words[1]);
  if (words.size() == 2 && action == "dump-samples") return dump_samples(words[1]);
  if (words.size() == 3 && action == "copy-records") return copy_records(words[1], words[2]);
  if (words.size() == 3 && action == "copy-members") return copy_members(words[1], words[2]);
  throw libtrain::UsageError(
      "usage: shards_program dump-records|dump-members|dump-samples FILE, or copy-records|copy-members FROM TO");
}

}  // namespace

int main(int argc, char** argv) {
  return libtrain::test::run_program([&] { run({argv + 1, argv + argc}); });
}
