#pragma once

#include <string>
#include <string_view>

namespace libtrain::data::detail {

/// What is wrong with JSON text. Thrown by parts that do not know which file the text belongs to, and turned into an
/// EnvironmentError by those that do.
struct JsonFault {
  enum class Kind {
    syntax,  ///< may be cured by reading on, where the text is the beginning of a longer one
    data,    ///< stays wrong whatever follows
  };
  Kind kind = Kind::syntax;
  const char* at = nullptr;   ///< where in the text; null where only the parser can say
  std::string expected = {};  ///< completes "expected ...": an integer for 'id'
};

/// A fault of Kind::data.
JsonFault data_fault(std::string expected, const char* at = nullptr);

/// The beginning of `text` in quotes, fit for a message: at most 24 printable characters; `end` where there is none.
std::string json_excerpt(std::string_view text, std::string_view end);

}  // namespace libtrain::data::detail
