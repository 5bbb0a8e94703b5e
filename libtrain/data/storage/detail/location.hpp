#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace libtrain::data::detail {

enum class StorageKind { local, azure, s3, gcs };

/// The parsed location of a user's data.
struct Location {
  StorageKind kind = StorageKind::local;

  /// For messages: as the user wrote it, without its query and without a '/' at its end. Nothing secret.
  std::string name = {};

  /// Azure: the storage account; empty if it must come from the environment.
  std::string account = {};

  /// Azure: the part of the blob service's host after the account, such as ".blob.core.windows.net"; empty if `account`
  /// is.
  std::string endpoint = {};

  /// Azure: the container. S3 and GCS: the bucket.
  std::string container = {};

  /// Local: the path of a file or folder. Otherwise: decoded parts joined by '/', without a '/' at its ends; empty for
  /// the whole container.
  std::string path = {};

  /// Azure: the query of the location, which is a shared access signature, verbatim and without its '?'. Secret.
  std::string sas_token = {};
};

/// Parses
///
///     path/to/data                                                  a local path, byte for byte as given
///     file:///path/to/data                                          a local path, which is absolute
///     abfss://container@account.dfs.core.windows.net/path           Azure; also abfs, wasbs and wasb, and a blob host
///     https://account.blob.core.windows.net/container/path?sas      Azure
///     az://container/path, abfss://container/path                   Azure, the account being in the environment
///     s3://bucket/path, gs://bucket/path                            also s3a and gcs
///
/// The clouds of China and the US government and account.z01.blob.storage.azure.net count as Azure. A shared access
/// signature may follow every Azure form after a '?'. Schemes and hosts are case-insensitive.
///
/// Percent-encoding: in a location with a scheme, %XX is one byte and '+' is a plus sign; a '%', '?' or '#' in a name
/// is written %25, %3F or %23. Local paths without "file:" are not decoded. The query is never decoded. Parts that are
/// empty, "." or "..", or contain a slash (%2F) or a control character, are refused.
///
/// Throws UsageError that names the location without its query and lists the accepted forms.
Location parse_location(const std::string& location);

/// The parts of scheme:[//authority]path[?query] (RFC 3986, section 3), not decoded.
struct Uri {
  std::string name;                      ///< the part before the query, without '/' at its end; not secret
  std::string scheme;                    ///< in lower case
  std::optional<std::string> authority;  ///< the part after "//"
  std::string path;
  std::optional<std::string> query;  ///< without its '?'. May be secret
  bool has_fragment = false;         ///< there is a '#'
};

/// std::nullopt if `location` does not begin with a scheme of two or more characters and ':'.
std::optional<Uri> split_uri(std::string_view location);

/// `word` with ASCII letters in lower case.
std::string lower_case(std::string_view word);

/// `path` without the slashes at its end, except the slash of "/" and those of "scheme://".
std::string without_trailing_slashes(std::string_view path);

/// `encoded` with every %XX replaced by its byte (RFC 3986, section 2.1); std::nullopt if a '%' is not followed by two
/// hexadecimal digits. A '+' stays a '+'.
std::optional<std::string> percent_decode(std::string_view encoded);

/// Whether `c` is an ASCII letter or digit, or one of "-._~".
bool is_unreserved(char c);

/// Writes every byte of `plain` for which stays() is false as %XX with capital digits.
std::string percent_encode(std::string_view plain, bool (*stays)(char) = is_unreserved);

/// The value of a parameter of a URL's query, still percent-encoded; empty if it is missing. Skips a leading '?'.
std::string_view query_parameter(std::string_view query, std::string_view name);

}  // namespace libtrain::data::detail
