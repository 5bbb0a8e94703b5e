// libtrain's side of parquet_images_peer_test.py: says which images it finds in Parquet files that Python made.
//
//   parquet_images_program read FOLDER PREFIX IMAGE LABEL       blocks, then all images of these columns
//   parquet_images_program open FOLDER                          the same, without being told that they are Parquet
//   parquet_images_program threads FOLDER ROW_GROUPS            what each of some threads reads, with few in memory
//   parquet_images_program bytes FOLDER ROW_GROUPS INDEX...     bytes read so far after each of these images
//
// An image is a line of its label, "=" and its bytes as hexadecimal digits, and where it is stored; or "refused" and
// the message. Exit codes are those of libtrain.

#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/sources/open_image_source.hpp>
#include <libtrain/data/sources/parquet_images.hpp>
#include <libtrain/data/stage_clock.hpp>
#include <libtrain/data/storage/open_storage.hpp>

#include <tests/support/run_program.hpp>

namespace lt = libtrain;
namespace data = libtrain::data;

namespace {

constexpr std::size_t kThreads = 4;

std::string written(std::string_view bytes) {
  std::string result = "=";
  for (const char byte : bytes) {
    char digits[3] = {};
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    result += digits;
  }
  return result;
}

std::uint64_t number(const std::string& word) {
  return std::strtoull(word.c_str(), nullptr, 10);
}

std::string line_of(const data::ImageSource& images, std::uint64_t index) {
  try {
    data::EncodedImage image;
    images.read(index, image);
    const auto origin = images.origin(index);
    return lt::text(image.label, ' ', written(image.bytes), ' ', origin.offset, ' ', origin.path);
  } catch (const lt::EnvironmentError& error) {
    return lt::text("refused ", error.what());
  }
}

void print(const data::ImageSource& images) {
  std::printf("blocks");
  for (const auto block : images.blocks()) std::printf(" %" PRIu64, block);
  std::printf("\n");
  for (std::uint64_t i = 0; i < images.size(); ++i) std::printf("%s\n", line_of(images, i).c_str());
}

void print_from_threads(const data::ImageSource& images) {
  std::vector<std::vector<std::string>> lines(kThreads, std::vector<std::string>(images.size()));
  {
    std::vector<std::jthread> threads;
    for (std::size_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (std::uint64_t i = 0; i < images.size(); ++i) {
          const std::uint64_t index = (i + thread * images.size() / kThreads) % images.size();
          lines[thread][index] = line_of(images, index);
        }
      });
    }
  }
  for (const auto& of_thread : lines) {
    for (const auto& line : of_thread) std::printf("%s\n", line.c_str());
  }
}

void print_bytes(const data::ImageSource& images, const std::vector<std::string>& indices) {
  data::StageClock clock;
  data::EncodedImage image;
  for (const auto& index : indices) {
    images.read(number(index), image);
    std::printf("%" PRIu64 "\n", clock.counts().bytes);
  }
}

void run(const std::vector<std::string>& words) {
  const std::string& command = words.at(1);
  const auto storage = data::open_storage(words.at(2));
  if (command == "open") return print(*data::open_image_source(storage));
  if (command == "read") {
    return print(data::ParquetImages{
        storage, {.prefix = words.at(3), .image_column = words.at(4), .label_column = words.at(5)}});
  }
  const data::ParquetImages images{storage, {.row_groups_in_memory = static_cast<std::size_t>(number(words.at(3)))}};
  if (command == "threads") return print_from_threads(images);
  if (command == "bytes") return print_bytes(images, {words.begin() + 4, words.end()});
  throw lt::UsageError(lt::text("There is no command '", command, "'."));
}

}  // namespace

int main(int argc, char** argv) {
  return lt::test::run_program([&] { run({argv, argv + argc}); });
}
