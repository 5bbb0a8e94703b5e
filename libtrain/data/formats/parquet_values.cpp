#include <libtrain/data/formats/parquet_values.hpp>

#include <concepts>
#include <limits>

#include <arrow/array.h>
#include <arrow/type.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

namespace {

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
      fail("expected a list within its column, found one beyond");
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

  // Indices come from the file.
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

}  // namespace

ParquetType parquet_type_of(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::BOOL:
    case arrow::Type::INT8:
    case arrow::Type::UINT8:
    case arrow::Type::INT16:
    case arrow::Type::UINT16:
    case arrow::Type::INT32:
    case arrow::Type::UINT32:
    case arrow::Type::INT64:
    case arrow::Type::UINT64:
      return ParquetType::integer;
    case arrow::Type::FLOAT:
    case arrow::Type::DOUBLE:
      return ParquetType::real;
    case arrow::Type::BINARY:
    case arrow::Type::STRING:
    case arrow::Type::LARGE_BINARY:
    case arrow::Type::LARGE_STRING:
    case arrow::Type::BINARY_VIEW:
    case arrow::Type::STRING_VIEW:
    case arrow::Type::FIXED_SIZE_BINARY:
      return ParquetType::bytes;
    case arrow::Type::DICTIONARY: {
      const auto& words = *static_cast<const arrow::DictionaryType&>(type).value_type();
      const bool nested = words.id() == arrow::Type::DICTIONARY;
      return !nested && parquet_type_of(words) == ParquetType::bytes ? ParquetType::bytes : ParquetType::other;
    }
    default:
      return ParquetType::other;
  }
}

bool is_parquet_list(const arrow::DataType& type) {
  return type.id() == arrow::Type::LIST || type.id() == arrow::Type::LARGE_LIST ||
         type.id() == arrow::Type::FIXED_SIZE_LIST;
}

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

}  // namespace libtrain::data::detail
