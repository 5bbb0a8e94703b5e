#include <libtrain/data/formats/parquet.hpp>

#include <algorithm>
#include <exception>
#include <limits>
#include <stdexcept>
#include <utility>

#include <arrow/array.h>
#include <arrow/chunked_array.h>
#include <arrow/io/interfaces.h>
#include <arrow/memory_pool.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/parquet_input.hpp>
#include <libtrain/data/formats/parquet_values.hpp>

namespace libtrain::data {

namespace detail {

/// What is known of an open file. Readers of row groups, which are not made for several threads, share it.
struct ParquetContent {
  std::shared_ptr<const File> file = {};
  std::shared_ptr<parquet::FileMetaData> metadata = {};
  std::vector<int> leaves = {};  // of each column its number in the file, -1 for one that is not read
};

}  // namespace detail

namespace {

using detail::ParquetContent;
using detail::ReadFailure;

constexpr int kDeepestStruct = 16;
constexpr std::uint64_t kBytesPerValue = 16;  // of a string view, the largest value in memory
constexpr std::int64_t kSpareBytes = std::int64_t{16} << 20;

void check(const arrow::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToStringWithoutContextLines());
}

template <typename Value>
Value value_of(arrow::Result<Value> result) {
  check(result.status());
  return std::move(result).ValueUnsafe();
}

[[noreturn]] void fail(const std::string& subject, const std::string& reason) {
  throw EnvironmentError(text(subject, ": ", reason, reason.ends_with('.') ? "" : "."));
}

// Gives Arrow's and Parquet's exceptions their place. What they made of one that reading the file threw gives way to
// that one: its type says whether the file or its storage is to blame.
template <typename Action>
auto with_subject(const std::string& subject, const ReadFailure& failure, const Action& action) {
  try {
    return action();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    failure.rethrow();
    fail(subject, error.what());
  }
}

/// What rows point at, and the pools that it was allocated from, which go last.
class Memory {
 public:
  explicit Memory(std::uint64_t maximum_row_group_bytes)
      : counted_(arrow::default_memory_pool()), capped_(&counted_, capacity(maximum_row_group_bytes)) {}

  arrow::MemoryPool* pool() { return &capped_; }
  void keep(std::shared_ptr<arrow::Array> array) { arrays_.push_back(std::move(array)); }

 private:
  static std::int64_t capacity(std::uint64_t bytes) {
    constexpr std::int64_t kMost = (std::numeric_limits<std::int64_t>::max() - kSpareBytes) / 4;
    return 4 * static_cast<std::int64_t>(std::min(bytes, static_cast<std::uint64_t>(kMost))) + kSpareBytes;
  }

  arrow::ProxyMemoryPool counted_;
  arrow::CappedMemoryPool capped_;
  std::vector<std::shared_ptr<arrow::Array>> arrays_;
};

// Reads the metadata unless they are known. Nothing is read ahead, since that takes Arrow's threads.
std::unique_ptr<parquet::arrow::FileReader> open_reader(const ParquetContent& content, ReadFailure& failure,
                                                        arrow::MemoryPool* pool) {
  parquet::ReaderProperties properties{pool};
  properties.set_page_checksum_verification(true);
  auto input = detail::parquet_input(content.file, failure);
  auto file = parquet::ParquetFileReader::Open(std::move(input), properties, content.metadata);
  parquet::ArrowReaderProperties arrow_properties{false};
  arrow_properties.set_pre_buffer(false);
  return value_of(parquet::arrow::FileReader::Make(pool, std::move(file), arrow_properties));
}

struct Columns {
  std::vector<ParquetColumn> columns = {};
  std::vector<int> leaves = {};

  void add(const parquet::arrow::SchemaField& field, const std::string& above, int depth) {
    const auto name = above.empty() ? field.field->name() : text(above, '.', field.field->name());
    const arrow::DataType& type = *field.field->type();
    if (field.is_leaf()) return add(name, type, detail::parquet_type_of(type), false, field.column_index);
    if (detail::is_parquet_list(type) && field.children.size() == 1 && field.children[0].is_leaf()) {
      const auto& element = field.children[0];
      return add(name, type, detail::parquet_type_of(*element.field->type()), true, element.column_index);
    }
    if (type.id() != arrow::Type::STRUCT || depth == kDeepestStruct) {
      return add(name, type, ParquetType::other, false, -1);
    }
    for (const auto& child : field.children) add(child, name, depth + 1);
  }

 private:
  void add(const std::string& name, const arrow::DataType& type, ParquetType read_as, bool list, int leaf) {
    columns.push_back({.name = name, .type = read_as, .list = list, .file_type = type.ToString()});
    leaves.push_back(leaf);
  }
};

// Without the structs around it, of which only this leaf was read.
std::shared_ptr<arrow::Array> leaf_of(std::shared_ptr<arrow::Array> array, arrow::MemoryPool* pool) {
  while (array->type_id() == arrow::Type::STRUCT) {
    if (array->num_fields() != 1) throw std::runtime_error("expected a struct of one field");
    array = value_of(static_cast<const arrow::StructArray&>(*array).GetFlattenedField(0, pool));
  }
  return array;
}

ParquetValues read_column(parquet::arrow::FileReader& reader, int row_group, int leaf, const ParquetColumn& column,
                          Memory& memory) {
  ParquetValues values{.name = column.name, .type = column.type, .list = column.list};
  const auto table = value_of(reader.ReadRowGroup(row_group, std::vector<int>{leaf}));
  if (table->num_columns() != 1) throw std::runtime_error(text("expected 1 column, found ", table->num_columns()));
  check(table->column(0)->Validate());
  for (const auto& chunk : table->column(0)->chunks()) {
    auto array = leaf_of(chunk, memory.pool());
    try {
      detail::append_rows(*array, values);
    } catch (const EnvironmentError& error) {
      throw std::runtime_error(error.what());
    }
    memory.keep(std::move(array));
  }
  return values;
}

// The file's own account of what reading takes, before anything is allocated for it.
std::uint64_t bytes_of(const parquet::RowGroupMetaData& row_group, int leaf) {
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  const auto chunk = row_group.ColumnChunk(leaf);
  const auto values = std::max(chunk->num_values(), row_group.num_rows());
  if (values < 0 || chunk->total_uncompressed_size() < 0) return kMost;
  const auto count = static_cast<std::uint64_t>(values);
  if (count > kMost / kBytesPerValue) return kMost;
  return std::max(static_cast<std::uint64_t>(chunk->total_uncompressed_size()), kBytesPerValue * count);
}

std::size_t find_column(const std::vector<ParquetColumn>& columns, const std::string& name,
                        const std::string& subject) {
  const auto found =
      std::find_if(columns.begin(), columns.end(), [&](const auto& column) { return column.name == name; });
  if (found == columns.end()) {
    std::vector<std::string> names;
    for (const auto& column : columns) names.push_back(column.name);
    fail(subject, text("expected a column '", name, "', found ", join(names, ", ")));
  }
  if (found->type == ParquetType::other) {
    fail(subject, text("expected the column '", name, "' to hold bytes, integers or real numbers, or lists of them, ",
                       "found the type ", found->file_type));
  }
  return static_cast<std::size_t>(found - columns.begin());
}

}  // namespace

bool has_parquet() {
  return true;
}

ParquetFile::ParquetFile(std::unique_ptr<const File> file, const ParquetOptions& options)
    : name_(detail::require_file(file.get(), "Parquet file").name()),
      maximum_row_group_bytes_(options.maximum_row_group_bytes) {
  const auto subject = text("Parquet file '", name_, "'");
  auto content = std::make_shared<ParquetContent>();
  content->file = std::move(file);
  ReadFailure failure;
  with_subject(subject, failure, [&] {
    const auto reader = open_reader(*content, failure, arrow::default_memory_pool());
    content->metadata = reader->parquet_reader()->metadata();
    Columns columns;
    for (const auto& field : reader->manifest().schema_fields) columns.add(field, "", 0);
    columns_ = std::move(columns.columns);
    content->leaves = std::move(columns.leaves);
    for (int i = 0; i < content->metadata->num_row_groups(); ++i) {
      const auto rows = content->metadata->RowGroup(i)->num_rows();
      if (rows < 0) fail(text(subject, ", row group ", i), text("expected a number of rows, found ", rows));
      group_rows_.push_back(static_cast<std::uint64_t>(rows));
      rows_ += group_rows_.back();
    }
  });
  content_ = std::move(content);
}

ParquetRows ParquetFile::read_row_group(std::size_t row_group, const std::vector<std::string>& columns) const {
  const auto subject = text("Parquet file '", name_, "', row group ", row_group);
  if (row_group >= row_groups()) throw UsageError(text(subject, ": the file has ", row_groups(), " row groups."));
  const auto number = static_cast<int>(row_group);
  auto memory = std::make_shared<Memory>(maximum_row_group_bytes_);
  std::vector<ParquetValues> values;
  ReadFailure failure;
  with_subject(subject, failure, [&] {
    std::vector<std::size_t> chosen;
    std::uint64_t left = maximum_row_group_bytes_;
    const auto group = content_->metadata->RowGroup(number);
    for (const auto& name : columns) {
      chosen.push_back(find_column(columns_, name, subject));
      const auto bytes = bytes_of(*group, content_->leaves[chosen.back()]);
      if (bytes > left) {
        fail(subject, text("expected at most ", maximum_row_group_bytes_, " bytes in the columns to be read, found ",
                           bytes, " in '", name, "' where ", left,
                           " are left; write smaller row groups, or raise maximum_row_group_bytes"));
      }
      left -= bytes;
    }
    const auto reader = open_reader(*content_, failure, memory->pool());
    for (const auto column : chosen) {
      const auto place = text(subject, ", column '", columns_[column].name, "'");
      with_subject(place, failure, [&] {
        values.push_back(read_column(*reader, number, content_->leaves[column], columns_[column], *memory));
        const auto found = values.back().nulls.size();
        const auto expected = group_rows_[row_group];
        if (found != expected) fail(place, text("expected ", expected, " rows, found ", found));
      });
    }
  });
  return {subject, group_rows_[row_group], std::move(values), std::move(memory)};
}

}  // namespace libtrain::data
