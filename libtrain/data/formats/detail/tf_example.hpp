#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace libtrain::data::detail {

/// Two of the kinds of tf.train.Feature. Bytes are views: see TfExample.
using TfBytesList = std::vector<std::string_view>;
using TfInt64List = std::vector<std::int64_t>;

/// A tf.train.Feature; std::monostate if it has no kind or is a list of floats, which is skipped.
using TfFeature = std::variant<std::monostate, TfBytesList, TfInt64List>;

/// A tf.train.Example: features by name.
///
/// Lifetime: a parsed example does not copy the values of its byte lists, such as an encoded image; they point into the
/// record, which must exist unchanged while the example is used. The same applies to byte lists of an example to
/// serialize. The example owns its names and numbers.
struct TfExample {
  std::map<std::string, TfFeature, std::less<>> features = {};

  /// The only value of the feature `name`. Throw EnvironmentError, which names `source`, the feature and its content
  /// (or the other features if it is missing), unless it has exactly one value of this kind.
  std::string_view only_bytes(std::string_view name, std::string_view source) const;
  std::int64_t only_int64(std::string_view name, std::string_view source) const;
};

/// Parses a serialized tf.train.Example (tensorflow/core/example/{example,feature}.proto) by the rules of protocol
/// buffers: integers may be packed, unknown fields and lists of floats are skipped, repeated messages are merged, and
/// the last entry of a map and the last kind of a feature win. `source` names the record in messages:
/// TfRecordFile::describe(). Throws EnvironmentError that names source and offset. Memory: 8 bytes per number, 16 per
/// view and about 100 per feature, which is less than 32 times the record even if it has only empty values.
TfExample parse_tf_example(std::string_view record, std::string_view source);

/// The inverse, with features sorted by name and packed numbers: equal examples give equal bytes.
std::string serialize_tf_example(const TfExample& example);

}  // namespace libtrain::data::detail
