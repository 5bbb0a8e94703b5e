#include <libtrain/data/storage/detail/location.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <utility>

#include <libtrain/base/detail/ascii.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/detail/azure.hpp>

namespace libtrain::data::detail {

namespace {

bool is_scheme(std::string_view word) {
  // A single letter is more likely a drive or a short name than a scheme.
  if (word.size() < 2 || std::isalpha(static_cast<unsigned char>(word.front())) == 0) return false;
  return std::all_of(word.begin(), word.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '+' || c == '.' || c == '-';
  });
}

}  // namespace

std::string lower_case(std::string_view word) {
  std::string lower{word};
  std::transform(lower.begin(), lower.end(), lower.begin(), libtrain::detail::ascii_lower);
  return lower;
}

std::string without_trailing_slashes(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/') && !path.ends_with("://")) path.remove_suffix(1);
  return std::string{path};
}

std::optional<Uri> split_uri(std::string_view location) {
  const auto colon = location.find(':');
  if (colon == std::string_view::npos || !is_scheme(location.substr(0, colon))) return std::nullopt;
  Uri uri;
  uri.scheme = lower_case(location.substr(0, colon));
  uri.has_fragment = location.find('#') != std::string_view::npos;
  if (const auto question = location.find('?'); question != std::string_view::npos) {
    uri.query = std::string{location.substr(question + 1)};
    location = location.substr(0, question);
  }
  uri.name = without_trailing_slashes(location);
  auto rest = location.substr(colon + 1);
  if (rest.starts_with("//")) {
    rest.remove_prefix(2);
    const auto slash = std::min(rest.find('/'), rest.size());
    uri.authority = std::string{rest.substr(0, slash)};
    rest.remove_prefix(slash);
  }
  uri.path = std::string{rest};
  return uri;
}

std::string_view query_parameter(std::string_view query, std::string_view name) {
  if (query.starts_with('?')) query.remove_prefix(1);
  while (!query.empty()) {
    const auto end = std::min(query.find('&'), query.size());
    const auto parameter = query.substr(0, end);
    const auto equals = std::min(parameter.find('='), parameter.size());
    if (parameter.substr(0, equals) == name) return parameter.substr(std::min(equals + 1, parameter.size()));
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return {};
}

std::optional<std::string> percent_decode(std::string_view encoded) {
  std::string plain;
  plain.reserve(encoded.size());
  for (std::size_t i = 0; i < encoded.size(); ++i) {
    if (encoded[i] != '%') {
      plain += encoded[i];
      continue;
    }
    if (encoded.size() - i < 3) return std::nullopt;
    unsigned byte = 0;
    const char* const end = encoded.data() + i + 3;
    if (std::from_chars(end - 2, end, byte, 16).ptr != end) return std::nullopt;
    plain += static_cast<char>(byte);
    i += 2;
  }
  return plain;
}

bool is_unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
         c == '_' || c == '~';
}

std::string percent_encode(std::string_view plain, bool (*stays)(char)) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : plain) {
    if (stays(c)) {
      encoded += c;
      continue;
    }
    const unsigned int byte = static_cast<unsigned char>(c);
    encoded += '%';
    encoded += digits[byte >> 4];
    encoded += digits[byte & 0x0fU];
  }
  return encoded;
}

namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw UsageError(text("Location '", name, "': ", why, "."));
}

std::string decode(const Uri& uri, std::string_view encoded) {
  auto plain = percent_decode(encoded);
  if (!plain) refuse(uri.name, "expected two hexadecimal digits after each '%'; write a '%' in a name as %25");
  const bool has_control = std::any_of(plain->begin(), plain->end(),
                                       [](char c) { return std::iscntrl(static_cast<unsigned char>(c)) != 0; });
  if (has_control) refuse(uri.name, "expected no control characters");
  return *std::move(plain);
}

// The decoded path without slashes at its ends; checks its parts.
std::string path_of(const Uri& uri) {
  std::string_view encoded = uri.path;
  if (encoded.starts_with('/')) encoded.remove_prefix(1);
  if (encoded.ends_with('/')) encoded.remove_suffix(1);
  std::string path;
  if (encoded.empty()) return path;
  for (std::size_t begin = 0; begin <= encoded.size();) {
    const auto end = std::min(encoded.find('/', begin), encoded.size());
    const auto part = decode(uri, encoded.substr(begin, end - begin));
    if (part.empty() || part == "." || part == ".." || part.find('/') != std::string::npos) {
      refuse(uri.name, "expected a path whose parts are not empty, '.' or '..' and contain no encoded slash");
    }
    if (begin > 0) path += '/';
    path += part;
    begin = end + 1;
  }
  return path;
}

// Takes the first part off a path.
std::string take_first_part(std::string& path) {
  const auto slash = std::min(path.find('/'), path.size());
  auto first = path.substr(0, slash);
  path.erase(0, std::min(slash + 1, path.size()));
  return first;
}

void require_account_name(const Uri& uri, std::string_view account) {
  const bool good = account.size() >= 3 && account.size() <= 24 &&
                    account.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789") == std::string_view::npos;
  if (!good) refuse(uri.name, "the name of a storage account is 3 to 24 lower-case letters and digits");
}

void require_container_name(const Uri& uri, std::string_view container) {
  if (container.empty()) refuse(uri.name, "expected the name of a container");
  if (container == "$root" || container == "$web" || container == "$logs") return;
  const bool good = container.size() >= 3 && container.size() <= 63 &&
                    container.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string_view::npos;
  if (!good) refuse(uri.name, "the name of a container is 3 to 63 lower-case letters, digits and '-'");
}

void require_bucket_name(const Uri& uri, std::string_view bucket) {
  const bool good = bucket.size() >= 3 && bucket.size() <= 222 && std::all_of(bucket.begin(), bucket.end(), [](char c) {
                      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-';
                    });
  if (!good) refuse(uri.name, "expected a bucket of 3 to 222 letters, digits, '.', '_' and '-' after '://'");
}

std::string sas_token_of(const Uri& uri) {
  if (!uri.query || uri.query->empty()) return {};
  if (query_parameter(*uri.query, "sig").empty()) {
    refuse(uri.name,
           "its query is not a shared access signature, because it has no parameter named sig; write a '?' in a name "
           "as %3F");
  }
  return *uri.query;
}

void require_no_query(const Uri& uri) {
  if (uri.query) refuse(uri.name, "a query after '?' has no meaning here; write a '?' in a name as %3F");
}

Location local_location(const Uri& uri) {
  require_no_query(uri);
  if (uri.authority && !uri.authority->empty() && lower_case(*uri.authority) != "localhost") {
    refuse(uri.name, "a file on another host cannot be read; write file:///path for a file on this host");
  }
  if (!uri.path.starts_with('/')) refuse(uri.name, "expected an absolute path, as in file:///path");
  const auto path = without_trailing_slashes(decode(uri, uri.path));
  return {.kind = StorageKind::local, .name = path, .path = path};
}

Location azure_location(const Uri& uri) {
  const std::string_view authority = *uri.authority;
  const auto at = authority.rfind('@');
  const bool is_url = uri.scheme == "https";
  if (is_url && at != std::string_view::npos) refuse(uri.name, "expected no user information before the host");
  Location location{.kind = StorageKind::azure, .name = uri.name, .path = path_of(uri), .sas_token = sas_token_of(uri)};
  if (!is_url && at == std::string_view::npos && authority.find('.') == std::string_view::npos &&
      authority.find(':') == std::string_view::npos) {
    location.container = authority;
  } else {
    const auto host = parse_azure_host(authority.substr(at == std::string_view::npos ? 0 : at + 1));
    if (!host) {
      refuse(uri.name,
             "expected a host of Azure Blob Storage, such as account.blob.core.windows.net; for an emulator or "
             "another endpoint, write az://container/path and set AZURE_STORAGE_BLOB_ENDPOINT");
    }
    require_account_name(uri, host->account);
    location.account = host->account;
    location.endpoint = host->endpoint;
    location.container =
        at == std::string_view::npos ? take_first_part(location.path) : std::string{authority.substr(0, at)};
  }
  require_container_name(uri, location.container);
  return location;
}

Location bucket_location(const Uri& uri, StorageKind kind) {
  require_no_query(uri);
  require_bucket_name(uri, *uri.authority);
  return {.kind = kind, .name = uri.name, .container = *uri.authority, .path = path_of(uri)};
}

constexpr std::array<std::pair<std::string_view, StorageKind>, 12> kSchemes{{
    {"file", StorageKind::local},
    {"abfs", StorageKind::azure},
    {"abfss", StorageKind::azure},
    {"wasb", StorageKind::azure},
    {"wasbs", StorageKind::azure},
    {"az", StorageKind::azure},
    {"azure", StorageKind::azure},
    {"https", StorageKind::azure},
    {"s3", StorageKind::s3},
    {"s3a", StorageKind::s3},
    {"gs", StorageKind::gcs},
    {"gcs", StorageKind::gcs},
}};

std::optional<StorageKind> kind_of_scheme(std::string_view scheme) {
  for (const auto& [name, kind] : kSchemes) {
    if (name == scheme) return kind;
  }
  return std::nullopt;
}

[[noreturn]] void fail_for_scheme(const Uri& uri) {
  if (uri.scheme == "http") {
    refuse(uri.name,
           "http:// is not supported, because it is not encrypted; for an emulator, write az://container/path and "
           "set AZURE_STORAGE_BLOB_ENDPOINT");
  }
  if (uri.scheme == "azureml") {
    refuse(uri.name,
           "azureml:// is resolved by the job service; give the job an input with mode ro_mount or download, "
           "which is a local path in the job, or write abfss://container@account.dfs.core.windows.net/path");
  }
  refuse(uri.name, text("the scheme '", uri.scheme,
                        "' is unknown; expected a local path, file:///path, "
                        "abfss://container@account.dfs.core.windows.net/path, az://container/path, "
                        "https://account.blob.core.windows.net/container/path, s3://bucket/path or gs://bucket/path"));
}

// "data:v1/train" is a path, but "s3:bucket" is a mistake.
bool is_mistaken_scheme(std::string_view scheme) {
  return scheme == "http" || scheme == "azureml" || kind_of_scheme(scheme).has_value();
}

}  // namespace

Location parse_location(const std::string& location) {
  if (location.empty()) throw UsageError("The location is empty. Give a path or a URI.");
  if (location.find('\0') != std::string::npos) throw UsageError("The location contains a zero byte.");
  const auto uri = split_uri(location);
  if (!uri || (!uri->authority && !is_mistaken_scheme(uri->scheme))) {
    const auto path = without_trailing_slashes(location);
    return {.kind = StorageKind::local, .name = path, .path = path};
  }
  if (uri->has_fragment) refuse(uri->name, "a '#' has no meaning here; write a '#' in a name as %23");
  const auto kind = kind_of_scheme(uri->scheme);
  if (!kind) fail_for_scheme(*uri);
  if (*kind == StorageKind::local) return local_location(*uri);
  if (!uri->authority) refuse(uri->name, text("expected '//' after '", uri->scheme, ":'"));
  return *kind == StorageKind::azure ? azure_location(*uri) : bucket_location(*uri, *kind);
}

}  // namespace libtrain::data::detail
