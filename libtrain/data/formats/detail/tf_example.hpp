#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace libtrain::data::detail {

/// The kinds of tf.train.Feature. Bytes are views: see TfExample.
using TfBytesList = std::vector<std::string_view>;
using TfFloatList = std::vector<float>;
using TfInt64List = std::vector<std::int64_t>;

/// A tf.train.Feature; std::monostate where no kind is set.
using TfFeature = std::variant<std::monostate, TfBytesList, TfFloatList, TfInt64List>;

/// A tf.train.Example: features by name.
///
/// Lifetime: an example that was parsed does not copy what its byte lists hold, such as an encoded image; it points
/// into the record, which must stay where it is, unchanged, as long as the example is used. The same holds for what the
/// user puts into an example in order to serialize it. Names and numbers are the example's own.
struct TfExample {
  std::map<std::string, TfFeature, std::less<>> features = {};

  /// The only value of the feature `name`. Throw EnvironmentError, which names `source`, the feature and what was found
  /// (the names of other features too, where it is absent), unless it holds exactly one value of this kind.
  std::string_view only_bytes(std::string_view name, std::string_view source) const;
  float only_float(std::string_view name, std::string_view source) const;
  std::int64_t only_int64(std::string_view name, std::string_view source) const;
};

/// Parses a serialized tf.train.Example (tensorflow/core/example/{example,feature}.proto) by the rules of protocol
/// buffers: numbers packed or not, unknown fields skipped, messages that occur twice merged, the last entry of a map
/// and the last kind of a feature win. `source` is how messages name the record: TfRecordFile::describe(). Throws
/// EnvironmentError that names source and offset. Memory: 4 or 8 bytes a number, 16 a view and about 100 a feature,
/// which is less than 32 times the record even where it holds nothing but empty values.
TfExample parse_tf_example(std::string_view record, std::string_view source);

/// The reverse, with features in the order of their names and numbers packed: equal examples give equal bytes.
std::string serialize_tf_example(const TfExample& example);

}  // namespace libtrain::data::detail
