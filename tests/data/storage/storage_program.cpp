// Reads from a storage and prints what it found, one JSON object a line, for storage_cases.py and the tests of stores
// that are made of it, azurite_test.py, s3_test.py and gcs_test.py:
//
//   storage_program list az://images/train
//   storage_program folders az://images/train
//   storage_program info az://images a.bin
//   storage_program read az://images a.bin --offset 5 --length 3
//   storage_program hash az://images a.bin b.bin
//   storage_program loop az://images a.bin --chunk 1000     the next chunk for each line on standard input, to the end
//   storage_program stage az://images DIR                   copies all files, as --stage DIR
//   storage_program cache az://images DIR                   reads all files, as with --cache DIR

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/data/storage/cached_storage.hpp>
#include <libtrain/data/storage/file_cache.hpp>
#include <libtrain/data/storage/open_storage.hpp>
#include <libtrain/data/storage/staging.hpp>

#include <tests/support/run_program.hpp>

namespace {

using Json = nlohmann::ordered_json;
namespace data = libtrain::data;

constexpr std::uint64_t kLongestFile = std::uint64_t{1} << 30;

struct Options {
  std::string location;
  std::string path;
  std::vector<std::string> paths;
  std::string folder;
  std::string copies;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint64_t chunk = 1 << 20;
  int change_check_ms = 1000;
  int deadline_ms = 300'000;
  bool anonymous = false;
};

void print(const Json& json) {
  std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
}

std::string hexadecimal(std::span<const unsigned char> bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned int byte : bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15U];
  }
  return text;
}

std::string sha256(const std::string& bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1) {
    throw libtrain::EnvironmentError("OpenSSL cannot compute SHA-256.");
  }
  return hexadecimal(std::span{digest}.first(size));
}

std::string read(const data::File& file, std::uint64_t offset, std::uint64_t length) {
  std::string bytes(length, '\0');
  file.read_at(offset, std::as_writable_bytes(std::span{bytes}));
  return bytes;
}

std::shared_ptr<const data::Storage> open_storage(const Options& options) {
  data::StorageOptions storage;
  storage.change_check = std::chrono::milliseconds{options.change_check_ms};
  storage.retry.deadline = std::chrono::milliseconds{options.deadline_ms};
  storage.retry.first_wait = std::chrono::milliseconds{100};
  storage.retry.longest_wait = std::chrono::milliseconds{1000};
  if (options.anonymous) storage.access = data::StorageAccess::anonymous;
  return data::open_storage(options.location, storage);
}

void print(const data::FileInfo& info) {
  print(Json{{"path", info.path}, {"size", info.size}, {"version", info.version}});
}

void list(const Options& options) {
  for (const auto& info : open_storage(options)->list(options.folder)) print(info);
}

void folders(const Options& options) {
  const auto names = open_storage(options)->folders(options.folder).value_or(std::vector<std::string>{});
  for (const auto& name : names) print(Json{{"folder", name}});
}

void read_range(const Options& options) {
  const auto file = open_storage(options)->open(options.path);
  const auto bytes = read(*file, options.offset, options.length);
  const auto* begin = reinterpret_cast<const unsigned char*>(bytes.data());
  print(Json{{"name", file->name()}, {"size", file->size()}, {"bytes", hexadecimal({begin, bytes.size()})}});
}

void hash(const Options& options) {
  const auto storage = open_storage(options);
  for (const auto& path : options.paths) {
    const auto bytes = data::read_all(*storage->open(path), kLongestFile);
    print(Json{{"path", path}, {"size", bytes.size()}, {"sha256", sha256(bytes)}});
  }
}

void loop(const Options& options) {
  const auto file = open_storage(options)->open(options.path);
  print(Json{{"opened", file->name()}, {"size", file->size()}});
  std::string line;
  for (std::uint64_t offset = 0; offset < file->size() && std::getline(std::cin, line);) {
    const auto bytes = read(*file, offset, std::min(options.chunk, file->size() - offset));
    print(Json{{"offset", offset}, {"length", bytes.size()}, {"sha256", sha256(bytes)}});
    offset += bytes.size();
  }
}

void stage(const Options& options) {
  const auto result = data::stage(*open_storage(options), "", options.copies);
  print(Json{{"files", result.files}, {"copied", result.copied_files}});
}

void cache(const Options& options) {
  const auto copies = std::make_shared<data::FileCache>(data::FileCacheOptions{.directory = options.copies});
  const data::CachedStorage storage{open_storage(options), copies};
  const auto files = storage.list("");
  for (const auto& file : files) data::read_all(*storage.open(file.path), kLongestFile);
  print(Json{{"files", files.size()}, {"copied", copies->statistics().fetched_files}});
}

void add_commands(CLI::App& app, Options& options) {
  app.require_subcommand(1);
  app.add_option("--change-check-ms", options.change_check_ms, "StorageOptions::change_check");
  app.add_option("--deadline-ms", options.deadline_ms, "RetryOptions::deadline");
  app.add_flag("--anonymous", options.anonymous, "send no credentials");
  const auto command = [&](const std::string& name, const std::string& help) {
    auto* added = app.add_subcommand(name, help);
    added->add_option("location", options.location, "the root of the storage")->required();
    added->fallthrough();
    return added;
  };
  command("list", "all files")->add_option("--folder", options.folder, "only those below this folder");
  command("folders", "the folders right in one")->add_option("--folder", options.folder, "below the location");
  command("info", "what is known of a file")->add_option("path", options.path)->required();
  auto* range = command("read", "some bytes of a file");
  range->add_option("path", options.path)->required();
  range->add_option("--offset", options.offset);
  range->add_option("--length", options.length)->required();
  command("hash", "whole files")->add_option("paths", options.paths)->required();
  auto* chunks = command("loop", "a file chunk by chunk");
  chunks->add_option("path", options.path)->required();
  chunks->add_option("--chunk", options.chunk);
  command("stage", "copy all files")->add_option("folder", options.copies, "of the copies")->required();
  command("cache", "read all files through a cache")->add_option("folder", options.copies, "of the copies")->required();
}

void run(const std::string& command, const Options& options) {
  if (command == "list") return list(options);
  if (command == "folders") return folders(options);
  if (command == "info") return print(open_storage(options)->info(options.path));
  if (command == "read") return read_range(options);
  if (command == "hash") return hash(options);
  if (command == "stage") return stage(options);
  if (command == "cache") return cache(options);
  loop(options);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Reads from a storage and prints what it found as JSON lines."};
  Options options;
  add_commands(app, options);
  CLI11_PARSE(app, argc, argv);
  return libtrain::test::run_program([&] { run(app.get_subcommands().front()->get_name(), options); },
                                     libtrain::log_error);
}
