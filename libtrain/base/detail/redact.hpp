#pragma once

#include <string>
#include <string_view>

namespace libtrain::detail {

/// Returns `message` with possible secrets replaced by "***": the query of every URL (it may contain a SAS signature)
/// and its user:password part, and the value of every `key=value` or `key: value` whose key looks like a secret
/// (see `looks_secret`). The logger and every libtrain::Error apply it, so that other code does not need to.
std::string redact(std::string_view message);

/// True for names such as AZUREML_RUN_TOKEN, sig, AccountKey, password or client_secret, in any case.
bool looks_secret(std::string_view name);

/// `value` as it may be shown beside its name: "***" if the name looks like a secret, otherwise redact(value).
std::string redact_value(std::string_view name, std::string_view value);

}  // namespace libtrain::detail
