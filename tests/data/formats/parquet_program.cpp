// libtrain's side of parquet_peer_test.py: says what it reads in files that Python made.
//
//   parquet_program read FILE BYTES COLUMN...   values of these columns, row by row, in row groups of at most BYTES
//   parquet_program columns FILE                a line for every column, and one for the numbers of rows
//   parquet_program survive FILE...             for each file whether all of it can be read, or the error
//   parquet_program folder DIRECTORY            images of an ImageFolder
//
// Bytes are written as hexadecimal digits after "=", doubles with all their digits. Exit codes are those of libtrain.

#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/image_folder.hpp>
#include <libtrain/data/formats/parquet.hpp>
#include <libtrain/data/storage/detail/local_storage.hpp>
#include <libtrain/data/storage/open_storage.hpp>

#include <tests/support/run_program.hpp>

namespace lt = libtrain;
namespace data = libtrain::data;

namespace {

std::string written(std::string_view bytes) {
  std::string result = "=";
  for (const char byte : bytes) {
    char digits[3] = {};
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    result += digits;
  }
  return result;
}

std::string written(std::int64_t number) {
  return std::to_string(number);
}

std::string written(double number) {
  char digits[40] = {};
  std::snprintf(digits, sizeof digits, "%.17g", number);
  return digits;
}

template <typename Values>
std::string written_list(const Values& values) {
  std::string result = "[";
  for (const auto& value : values) result += written(value) + ",";
  return result + "]";
}

std::string value_of(const data::ParquetRows& rows, std::uint64_t row, std::size_t number,
                     const data::ParquetColumn& column) {
  if (rows.is_null(row, number)) return "null";
  switch (column.type) {
    case data::ParquetType::bytes:
      return column.list ? written_list(rows.bytes_list(row, number)) : written(rows.bytes(row, number));
    case data::ParquetType::integer:
      return column.list ? written_list(rows.integer_list(row, number)) : written(rows.integer(row, number));
    case data::ParquetType::real:
      return column.list ? written_list(rows.real_list(row, number)) : written(rows.real(row, number));
    case data::ParquetType::other:
      break;
  }
  return "other";
}

const data::ParquetColumn& column_named(const data::ParquetFile& file, const std::string& name) {
  for (const auto& column : file.columns()) {
    if (column.name == name) return column;
  }
  throw lt::UsageError(lt::text("There is no column '", name, "'."));
}

void read(const std::string& path, const std::string& bytes, const std::vector<std::string>& names) {
  const data::ParquetFile file{data::open_file(path),
                               {.maximum_row_group_bytes = std::strtoull(bytes.c_str(), nullptr, 10)}};
  for (std::size_t group = 0; group < file.row_groups(); ++group) {
    const auto rows = file.read_row_group(group, names);
    for (std::uint64_t row = 0; row < rows.size(); ++row) {
      std::printf("%zu", group);
      for (std::size_t i = 0; i < names.size(); ++i) {
        std::printf(" %s", value_of(rows, row, i, column_named(file, names[i])).c_str());
      }
      std::printf("\n");
    }
  }
}

void print_columns(const std::string& path) {
  const data::ParquetFile file{data::open_file(path)};
  for (const auto& column : file.columns()) {
    std::printf("%s %d %d\n", column.name.c_str(), static_cast<int>(column.type), column.list ? 1 : 0);
  }
  std::printf("rows %" PRIu64, file.rows());
  for (std::size_t group = 0; group < file.row_groups(); ++group) std::printf(" %" PRIu64, file.rows(group));
  std::printf("\n");
}

void survive(const std::vector<std::string>& paths) {
  for (const auto& path : paths) {
    try {
      const data::ParquetFile file{data::open_file(path), {.maximum_row_group_bytes = std::uint64_t{1} << 24}};
      std::vector<std::string> names;
      for (const auto& column : file.columns()) {
        if (column.type != data::ParquetType::other) names.push_back(column.name);
      }
      for (std::size_t group = 0; group < file.row_groups(); ++group) file.read_row_group(group, names);
      std::printf("read\n");
    } catch (const lt::EnvironmentError& error) {
      std::string message = error.what();
      for (auto& character : message) {
        // Names from a damaged file hold anything.
        if (character < ' ' || character > '~') character = '?';
      }
      std::printf("refused %s\n", message.c_str());
    }
  }
}

void print_folder(const std::string& path) {
  const auto images = data::list_image_folder(data::detail::LocalStorage{path}, "");
  for (const auto& name : images.classes()) std::printf("class %s\n", written(std::string_view{name}).c_str());
  for (std::size_t i = 0; i < images.size(); ++i) {
    std::printf("image %u %s\n", static_cast<unsigned>(images.label(i)), written(images.path(i)).c_str());
  }
}

void run(const std::vector<std::string>& words) {
  const std::string& command = words.at(1);
  if (command == "read") return read(words.at(2), words.at(3), {words.begin() + 4, words.end()});
  if (command == "columns") return print_columns(words.at(2));
  if (command == "survive") return survive({words.begin() + 2, words.end()});
  if (command == "folder") return print_folder(words.at(2));
  throw lt::UsageError(lt::text("There is no command '", command, "'."));
}

}  // namespace

int main(int argc, char** argv) {
  return lt::test::run_program([&] { run({argv, argv + argc}); });
}
