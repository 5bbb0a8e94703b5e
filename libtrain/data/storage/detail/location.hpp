#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace libtrain::data::detail {

enum class StorageKind { local, azure, s3, gcs };

/// Where a user's data lie, as told by one string.
struct Location {
  StorageKind kind = StorageKind::local;

  /// How messages name it: as the user wrote it, without its query and without a '/' at its end. Nothing secret.
  std::string name = {};

  /// Azure: the storage account, or empty where AZURE_STORAGE_ACCOUNT or the like has to say.
  std::string account = {};

  /// Azure: what follows the account in the host of its blob service, such as ".blob.core.windows.net"; empty with
  /// `account`.
  std::string endpoint = {};

  /// Azure: the container. S3 and GCS: the bucket.
  std::string container = {};

  /// Local: the path of a file or folder. Otherwise: decoded parts joined by '/', none at its ends; empty for all of
  /// the container.
  std::string path = {};

  /// Azure: the query of the location, verbatim and without its '?', which is a shared access signature. Secret.
  std::string sas_token = {};
};

/// Understands
///
///     path/to/data                                                  a local path, byte for byte as given
///     file:///path/to/data                                          a local path, which is absolute
///     abfss://container@account.dfs.core.windows.net/path           Azure; also abfs, wasbs and wasb, and a blob host
///     https://account.blob.core.windows.net/container/path?sas      Azure
///     az://container/path, abfss://container/path                   Azure, the account being in the environment
///     s3://bucket/path, gs://bucket/path                            also s3a and gcs
///
/// The clouds of China and the US government and account.z01.blob.storage.azure.net count as Azure. A shared access
/// signature may follow every Azure form after a '?'. Names of schemes and hosts may be in capitals.
///
/// Percent-encoding: in everything that begins with a scheme, %XX stands for one byte and '+' for itself; a '%', '?' or
/// '#' of a name is written %25, %3F or %23. Local paths without "file:" are not decoded. The query is never decoded.
/// Parts that are empty, "." or "..", or hold a slash (%2F) or a control character, are refused.
///
/// Throws UsageError that names the location without its query, and says what is understood.
Location parse_location(const std::string& location);

/// The parts of scheme:[//authority]path[?query] (RFC 3986, section 3), none of them decoded.
struct Uri {
  std::string name;                      ///< all before the query, without '/' at its end: what may be printed
  std::string scheme;                    ///< in small letters
  std::optional<std::string> authority;  ///< what follows "//", where that is there
  std::string path;
  std::optional<std::string> query;  ///< without its '?'. May be secret
  bool has_fragment = false;         ///< there is a '#'
};

/// Nothing where `location` does not begin with a scheme of two or more characters and ':'.
std::optional<Uri> split_uri(std::string_view location);

/// ASCII letters in small.
std::string lower_case(std::string_view word);

/// Without the slashes at its end; one stays where there is nothing else, or where "//" of a URI would go.
std::string without_trailing_slashes(std::string_view path);

/// `encoded` with every %XX replaced by the byte that it stands for (RFC 3986, section 2.1); nothing where a '%' is not
/// followed by two hexadecimal digits. A '+' stays a '+'.
std::optional<std::string> percent_decode(std::string_view encoded);

/// The letters and digits of ASCII, and "-._~".
bool is_unreserved(char c);

/// `plain` with every byte but those that stay as %XX with capital digits.
std::string percent_encode(std::string_view plain, bool (*stays)(char) = is_unreserved);

/// What a parameter of a URL's query says, still percent-encoded; empty where it does not have it. A leading
/// '?' is skipped.
std::string_view query_parameter(std::string_view query, std::string_view name);

}  // namespace libtrain::data::detail
