#include <libtrain/data/formats/parquet.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <utility>

#include <arrow/array.h>
#include <arrow/buffer.h>
#include <arrow/chunked_array.h>
#include <arrow/io/interfaces.h>
#include <arrow/memory_pool.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <arrow/type_traits.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data::detail {

namespace {

// The first exception of a read: exceptions do not pass through Arrow, which keeps only the message. Any thread may
// call it.
class ReadFailure {
 public:
  // Keeps the current exception, unless there already is one.
  void keep_current() {
    const std::lock_guard lock(mutex_);
    if (!exception_) exception_ = std::current_exception();
  }

  // Throws the exception if there is one.
  void rethrow() const {
    const std::lock_guard lock(mutex_);
    if (exception_) std::rethrow_exception(exception_);
  }

 private:
  mutable std::mutex mutex_;
  std::exception_ptr exception_;
};

// A File as an input of Arrow, for one reader. ReadAt() reads on the calling thread, any number at once. An exception
// of File::read_at becomes a status with the same message and is kept in `failure`, which must outlive the reading.
class ParquetInput final : public arrow::io::RandomAccessFile {
 public:
  ParquetInput(std::shared_ptr<const File> file, ReadFailure& failure) : file_(std::move(file)), failure_(failure) {}

  using arrow::io::RandomAccessFile::ReadAt;

  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }

  arrow::Result<std::int64_t> GetSize() override { return static_cast<std::int64_t>(file_->size()); }
  arrow::Result<std::int64_t> Tell() const override { return position_; }

  arrow::Status Seek(std::int64_t position) override {
    ARROW_RETURN_NOT_OK(available(position, 0).status());
    position_ = position;
    return arrow::Status::OK();
  }

  arrow::Result<std::int64_t> ReadAt(std::int64_t position, std::int64_t count, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const auto readable, available(position, count));
    try {
      file_->read_at(static_cast<std::uint64_t>(position),
                     std::span{static_cast<std::byte*>(out), static_cast<std::size_t>(readable)});
    } catch (const std::exception& error) {
      failure_.keep_current();
      return arrow::Status::IOError(error.what());
    }
    return readable;
  }

  // Allocates memory only for bytes that exist.
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(std::int64_t position, std::int64_t count) override {
    ARROW_ASSIGN_OR_RAISE(const auto readable, available(position, count));
    ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::Buffer> buffer, arrow::AllocateBuffer(readable));
    ARROW_RETURN_NOT_OK(ReadAt(position, readable, static_cast<void*>(buffer->mutable_data())).status());
    return buffer;
  }

  arrow::Result<std::int64_t> Read(std::int64_t count, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const auto read, ReadAt(position_, count, out));
    position_ += read;
    return read;
  }

  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(std::int64_t count) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, ReadAt(position_, count));
    position_ += buffer->size();
    return buffer;
  }

 private:
  // The number of bytes, at most `count`, from `position` on.
  arrow::Result<std::int64_t> available(std::int64_t position, std::int64_t count) const {
    const auto size = static_cast<std::int64_t>(file_->size());
    if (position < 0 || position > size || count < 0) {
      return arrow::Status::IOError(text("byte offset ", position, ": expected ", count, " bytes in a file of ", size));
    }
    return std::min(count, size - position);
  }

  std::shared_ptr<const File> file_;
  ReadFailure& failure_;
  std::int64_t position_ = 0;
  bool closed_ = false;
};

class Appender {
 public:
  explicit Appender(ParquetValues& to) : to_(to) {}

  void rows(const arrow::Array& array) {
    for (std::int64_t i = 0; i < array.length(); ++i) to_.nulls.push_back(array.IsNull(i));
    values(array, 0, array.length());
  }

  template <typename ListArray>
  void lists(const arrow::Array& array) {
    const auto& typed = static_cast<const ListArray&>(array);
    const auto& elements = *typed.values();
    for (std::int64_t i = 0; i < array.length(); ++i) {
      to_.nulls.push_back(array.IsNull(i));
      if (array.IsValid(i)) list_values(elements, typed.value_offset(i), typed.value_length(i));
      to_.ends.push_back(count_values());
    }
  }

 private:
  std::size_t count_values() const { return to_.bytes.size() + to_.integers.size() + to_.reals.size(); }

  [[noreturn]] void fail(std::string_view expected_and_found) const {
    const std::size_t row = to_.list ? to_.nulls.size() - 1 : count_values();
    throw EnvironmentError(text("row ", row, " of the group: ", expected_and_found));
  }

  void list_values(const arrow::Array& elements, std::int64_t begin, std::int64_t count) {
    if (begin < 0 || count < 0 || begin > elements.length() || count > elements.length() - begin) {
      fail("expected a list within its column, found one outside");
    }
    for (std::int64_t i = begin; i < begin + count; ++i) {
      if (elements.IsNull(i)) fail("expected values in a list, found a null");
    }
    values(elements, begin, count);
  }

  void values(const arrow::Array& array, std::int64_t begin, std::int64_t count) {
    switch (array.type_id()) {
      case arrow::Type::BOOL:
        return integers<arrow::BooleanArray>(array, begin, count);
      case arrow::Type::INT8:
        return integers<arrow::Int8Array>(array, begin, count);
      case arrow::Type::UINT8:
        return integers<arrow::UInt8Array>(array, begin, count);
      case arrow::Type::INT16:
        return integers<arrow::Int16Array>(array, begin, count);
      case arrow::Type::UINT16:
        return integers<arrow::UInt16Array>(array, begin, count);
      case arrow::Type::INT32:
        return integers<arrow::Int32Array>(array, begin, count);
      case arrow::Type::UINT32:
        return integers<arrow::UInt32Array>(array, begin, count);
      case arrow::Type::INT64:
        return integers<arrow::Int64Array>(array, begin, count);
      case arrow::Type::UINT64:
        return integers<arrow::UInt64Array>(array, begin, count);
      case arrow::Type::FLOAT:
        return reals<arrow::FloatArray>(array, begin, count);
      case arrow::Type::DOUBLE:
        return reals<arrow::DoubleArray>(array, begin, count);
      case arrow::Type::BINARY:
      case arrow::Type::STRING:
        return bytes<arrow::BinaryArray>(array, begin, count);
      case arrow::Type::LARGE_BINARY:
      case arrow::Type::LARGE_STRING:
        return bytes<arrow::LargeBinaryArray>(array, begin, count);
      case arrow::Type::BINARY_VIEW:
      case arrow::Type::STRING_VIEW:
        return bytes<arrow::BinaryViewArray>(array, begin, count);
      case arrow::Type::FIXED_SIZE_BINARY:
        return bytes<arrow::FixedSizeBinaryArray>(array, begin, count);
      case arrow::Type::DICTIONARY:
        return dictionary(static_cast<const arrow::DictionaryArray&>(array), begin, count);
      default:
        fail(text("expected values of a simple type, found ", array.type()->ToString()));
    }
  }

  template <typename Array>
  void integers(const arrow::Array& array, std::int64_t begin, std::int64_t count) {
    const auto& typed = static_cast<const Array&>(array);
    for (std::int64_t i = begin; i < begin + count; ++i) {
      to_.integers.push_back(array.IsNull(i) ? std::int64_t{0} : widened(typed.Value(i)));
    }
  }

  template <typename Number>
  std::int64_t widened(Number number) const {
    if constexpr (std::same_as<Number, std::uint64_t>) {
      if (number > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
        fail(text("expected an integer of at most 2^63 - 1, found ", number));
      }
    }
    return static_cast<std::int64_t>(number);
  }

  template <typename Array>
  void reals(const arrow::Array& array, std::int64_t begin, std::int64_t count) {
    const auto& typed = static_cast<const Array&>(array);
    for (std::int64_t i = begin; i < begin + count; ++i) {
      to_.reals.push_back(array.IsNull(i) ? 0.0 : static_cast<double>(typed.Value(i)));
    }
  }

  template <typename Array>
  void bytes(const arrow::Array& array, std::int64_t begin, std::int64_t count) {
    const auto& typed = static_cast<const Array&>(array);
    for (std::int64_t i = begin; i < begin + count; ++i) {
      to_.bytes.push_back(array.IsNull(i) ? std::string_view{} : typed.GetView(i));
    }
  }

  // The indices come from the file and are not trusted.
  void dictionary(const arrow::DictionaryArray& array, std::int64_t begin, std::int64_t count) {
    const auto& words = *array.dictionary();
    if (words.type_id() == arrow::Type::DICTIONARY) fail("expected a dictionary of values, found one of dictionaries");
    for (std::int64_t i = begin; i < begin + count; ++i) {
      if (array.IsNull(i)) {
        to_.bytes.emplace_back();
        continue;
      }
      const std::int64_t index = array.GetValueIndex(i);
      if (index < 0 || index >= words.length() || words.IsNull(index)) {
        fail(text("expected the index of one of ", words.length(), " words, found ", index));
      }
      values(words, index, 1);
    }
  }

  ParquetValues& to_;
};

// The type as which values of this Arrow type are read; `other` for nested types.
ParquetType parquet_type_of(const arrow::DataType& type) {
  const auto id = type.id();
  if (id == arrow::Type::BOOL || arrow::is_integer(id)) return ParquetType::integer;
  if (id == arrow::Type::FLOAT || id == arrow::Type::DOUBLE) return ParquetType::real;
  const auto is_bytes = [](arrow::Type::type each) {
    return arrow::is_base_binary_like(each) || arrow::is_binary_view_like(each) ||
           each == arrow::Type::FIXED_SIZE_BINARY;
  };
  const bool is_words =
      id == arrow::Type::DICTIONARY && is_bytes(static_cast<const arrow::DictionaryType&>(type).value_type()->id());
  return is_words || is_bytes(id) ? ParquetType::bytes : ParquetType::other;
}

// Whether this is a list type that append_rows() reads, with any type of values.
bool is_parquet_list(const arrow::DataType& type) {
  return type.id() == arrow::Type::LIST || type.id() == arrow::Type::LARGE_LIST ||
         type.id() == arrow::Type::FIXED_SIZE_LIST;
}

// Appends the rows of `array` to `to`, which must have the corresponding type and `list`. Bytes are not copied: the
// array must outlive them. Throws EnvironmentError, "row <number>: <expected and found>", for a null in a list, an
// integer above 2^63 - 1, and an index outside its dictionary.
void append_rows(const arrow::Array& array, ParquetValues& to) {
  Appender appender(to);
  switch (array.type_id()) {
    case arrow::Type::LIST:
      return appender.lists<arrow::ListArray>(array);
    case arrow::Type::LARGE_LIST:
      return appender.lists<arrow::LargeListArray>(array);
    case arrow::Type::FIXED_SIZE_LIST:
      return appender.lists<arrow::FixedSizeListArray>(array);
    default:
      return appender.rows(array);
  }
}

}  // namespace

/// The properties of an open file, shared by the readers of row groups, each of which is used by one thread.
struct ParquetContent {
  std::shared_ptr<const File> file = {};
  std::shared_ptr<parquet::FileMetaData> metadata = {};
  std::vector<int> leaves = {};  // the number of each column in the file, -1 if it cannot be read
};

}  // namespace libtrain::data::detail

namespace libtrain::data {

namespace {

using detail::ParquetContent;
using detail::ReadFailure;

constexpr int kMaxStructDepth = 16;
constexpr std::uint64_t kBytesPerValue = 16;  // a string view, the largest value in memory
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

// Adds `subject` to exceptions of Arrow and Parquet. If reading the file threw, rethrows that exception instead: its
// type distinguishes errors of the file from errors of the storage.
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

/// The arrays to which rows point, and the pools from which they were allocated, which must be destroyed last.
class Memory {
 public:
  explicit Memory(std::uint64_t maximum_row_group_bytes)
      : counted_(arrow::default_memory_pool()), capped_(&counted_, capacity(maximum_row_group_bytes)) {}

  arrow::MemoryPool* pool() { return &capped_; }
  void keep(std::shared_ptr<arrow::Array> array) { arrays_.push_back(std::move(array)); }

 private:
  static std::int64_t capacity(std::uint64_t bytes) {
    constexpr std::int64_t kMax = (std::numeric_limits<std::int64_t>::max() - kSpareBytes) / 4;
    return 4 * static_cast<std::int64_t>(std::min(bytes, static_cast<std::uint64_t>(kMax))) + kSpareBytes;
  }

  arrow::ProxyMemoryPool counted_;
  arrow::CappedMemoryPool capped_;
  std::vector<std::shared_ptr<arrow::Array>> arrays_;
};

// Reads the metadata unless they are known. Reads nothing ahead, because that uses Arrow's threads.
std::unique_ptr<parquet::arrow::FileReader> open_reader(const ParquetContent& content, ReadFailure& failure,
                                                        arrow::MemoryPool* pool) {
  parquet::ReaderProperties properties{pool};
  properties.set_page_checksum_verification(true);
  auto input = std::make_shared<detail::ParquetInput>(content.file, failure);
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
    if (type.id() != arrow::Type::STRUCT || depth == kMaxStructDepth) {
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

// Removes the structs around the only leaf that was read.
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

// The size of a column according to the file, which is checked before memory is allocated.
std::uint64_t bytes_of(const parquet::RowGroupMetaData& row_group, int leaf) {
  constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
  const auto chunk = row_group.ColumnChunk(leaf);
  const auto values = std::max(chunk->num_values(), row_group.num_rows());
  if (values < 0 || chunk->total_uncompressed_size() < 0) return kMax;
  const auto count = static_cast<std::uint64_t>(values);
  if (count > kMax / kBytesPerValue) return kMax;
  return std::max(static_cast<std::uint64_t>(chunk->total_uncompressed_size()), kBytesPerValue * count);
}

}  // namespace

ParquetFile::ParquetFile(std::unique_ptr<const File> file, const ParquetOptions& options)
    : name_(detail::require_file(file.get(), "Parquet file").name()),
      bytes_(file->size()),
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
      chosen.push_back(column(name));
      if (columns_[chosen.back()].type == ParquetType::other) {
        fail(subject, text("expected bytes, integers or real numbers, or lists of them, in the column '", name,
                           "', found the type ", columns_[chosen.back()].file_type));
      }
      const auto bytes = bytes_of(*group, content_->leaves[chosen.back()]);
      if (bytes > left) {
        fail(subject,
             text("expected at most ", maximum_row_group_bytes_, " bytes in the columns to read, found ", bytes,
                  " in '", name, "' with ", left, " left. Write smaller row groups, or raise maximum_row_group_bytes"));
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
