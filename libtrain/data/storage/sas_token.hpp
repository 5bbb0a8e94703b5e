#pragma once

#include <string>
#include <string_view>

namespace libtrain::data::detail {

/// What a parameter of a shared access signature (or any other URL query) says, still percent-encoded; empty where
/// `token` does not have it. A leading '?' of the token is skipped.
///
/// The parameters that matter here: sig, the signature, which is the secret; se, when the token expires.
std::string_view sas_parameter(std::string_view token, std::string_view name);

/// The token without the '?' with which some tools write it.
std::string without_question_mark(std::string_view token);

}  // namespace libtrain::data::detail
