#include <libtrain/data/storage/detail/storage_failure.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <optional>
#include <span>
#include <system_error>

#include <libtrain/base/detail/ascii.hpp>
#include <libtrain/base/detail/redact.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/detail/location.hpp>

namespace libtrain::data::detail {

namespace {

constexpr auto kNone = std::string_view::npos;
constexpr std::size_t kReasonBytes = 400;
constexpr std::size_t kShortestSecret = 4;
constexpr std::string_view kMask = "***";

// Beginnings of the clients' messages inside Arrow's.
constexpr std::string_view kAzure = "Azure Error: [";
constexpr std::string_view kAws = "AWS Error ";
constexpr std::string_view kAwsStatus = "(HTTP status ";
constexpr std::string_view kGoogle = "google::cloud::Status(";

// Parts of the messages of Google's client: why no request was sent, libcurl's words, and information about the client.
constexpr std::string_view kNoToken = "Could not create a OAuth2 access token";
constexpr std::string_view kUnderlying = "The underlying error message was: ";
constexpr std::string_view kCurl = "CURL error ";
constexpr std::string_view kErrorInfo = " error_info={";

struct Meaning {
  std::string_view words;
  FailureKind kind;
};

// Words of libcurl, which all clients use.
constexpr std::array<Meaning, 3> kNetwork{{
    {"resolve host", FailureKind::unreachable},
    {"resolve proxy", FailureKind::unreachable},
    {"certificate", FailureKind::unknown},
}};

// Aws::S3::S3Errors.
constexpr std::array<Meaning, 15> kAwsErrors{{
    {"RESOURCE_NOT_FOUND", FailureKind::missing},
    {"NO_SUCH_KEY", FailureKind::missing},
    {"NO_SUCH_BUCKET", FailureKind::missing},
    {"ACCESS_DENIED", FailureKind::refused},
    {"INVALID_ACCESS_KEY_ID", FailureKind::refused},
    {"INVALID_CLIENT_TOKEN_ID", FailureKind::refused},
    {"INVALID_SIGNATURE", FailureKind::refused},
    {"SIGNATURE_DOES_NOT_MATCH", FailureKind::refused},
    {"REQUEST_EXPIRED", FailureKind::refused},
    {"NETWORK_CONNECTION", FailureKind::transient},
    {"SLOW_DOWN", FailureKind::transient},
    {"THROTTLING", FailureKind::transient},
    {"SERVICE_UNAVAILABLE", FailureKind::transient},
    {"INTERNAL_FAILURE", FailureKind::transient},
    {"REQUEST_TIMEOUT", FailureKind::transient},
}};

// google::cloud::StatusCode.
constexpr std::array<Meaning, 10> kGoogleErrors{{
    {"NOT_FOUND", FailureKind::missing},
    {"PERMISSION_DENIED", FailureKind::refused},
    {"UNAUTHENTICATED", FailureKind::refused},
    {"OUT_OF_RANGE", FailureKind::changed},
    {"FAILED_PRECONDITION", FailureKind::changed},
    {"UNAVAILABLE", FailureKind::transient},
    {"DEADLINE_EXCEEDED", FailureKind::transient},
    {"RESOURCE_EXHAUSTED", FailureKind::transient},
    {"INTERNAL", FailureKind::transient},
    {"ABORTED", FailureKind::transient},
}};

// Beginnings of Arrow's own messages. Elsewhere in a message the words may be about a file of credentials.
constexpr std::array<std::string_view, 2> kMissing{"Path does not exist", "No such file or directory"};

// Words of exceptions that pass through Arrow.
constexpr std::array<Meaning, 7> kPlain{{
    {"GetToken(): ", FailureKind::unreachable},
    {"AuthenticationException", FailureKind::unreachable},
    {"Credential", FailureKind::unreachable},
    {"credential", FailureKind::unreachable},
    {"timed out", FailureKind::transient},
    {"Connection reset", FailureKind::transient},
    {"Broken pipe", FailureKind::transient},
}};

std::optional<FailureKind> first_contained(std::span<const Meaning> meanings, std::string_view message) {
  for (const auto& meaning : meanings) {
    if (message.find(meaning.words) != kNone) return meaning.kind;
  }
  return std::nullopt;
}

FailureKind kind_of_name(std::span<const Meaning> meanings, std::string_view name) {
  for (const auto& meaning : meanings) {
    if (meaning.words == name) return meaning.kind;
  }
  return FailureKind::unknown;
}

FailureKind kind_of_status(int status) {
  switch (status) {
    case 401:
    case 403:
      return FailureKind::refused;
    case 404:
      return FailureKind::missing;
    case 412:
    case 416:
      return FailureKind::changed;
    case 408:
    case 429:
      return FailureKind::transient;
    default:
      return status >= 500 ? FailureKind::transient : FailureKind::unknown;
  }
}

// The HTTP status with which `words` begin.
std::optional<int> leading_status(std::string_view words) {
  int status = 0;
  const auto result = std::from_chars(words.data(), words.data() + words.size(), status);
  if (result.ec != std::errc{} || status < 100 || status > 599) return std::nullopt;
  return status;
}

// "[BlobNotFound] 404 The specified blob does not exist. ...", or "[] " and the words of libcurl.
FailureKind kind_of_azure(std::string_view error) {
  const auto bracket = error.find("] ");
  const auto words = error.substr(bracket == kNone ? 0 : bracket + 2);
  if (const auto status = leading_status(words)) return kind_of_status(*status);
  return first_contained(kNetwork, words).value_or(FailureKind::transient);
}

// "NO_SUCH_KEY during GetObject operation: ...", "UNKNOWN (HTTP status 503) during ...".
FailureKind kind_of_aws(std::string_view error) {
  if (const auto kind = first_contained(kNetwork, error)) return *kind;
  const auto name = error.substr(0, error.find(' '));
  if (name != "UNKNOWN") return kind_of_name(kAwsErrors, name);
  const auto status = error.find(kAwsStatus);
  if (status == kNone) return FailureKind::unknown;
  return kind_of_status(leading_status(error.substr(status + kAwsStatus.size())).value_or(0));
}

// "UNAVAILABLE: ...". If there was no token, the name belongs to the response to the request for a token.
FailureKind kind_of_google(std::string_view error) {
  const auto kind = kind_of_name(kGoogleErrors, error.substr(0, error.find_first_of(":)")));
  if (kind == FailureKind::refused) return kind;
  if (kind != FailureKind::transient) return error.find(kNoToken) == kNone ? kind : FailureKind::unreachable;
  const auto curl = error.find(kCurl);
  return curl == kNone ? kind : first_contained(kNetwork, error.substr(curl)).value_or(kind);
}

// The reason is at the end of a long message, before the information about the client.
std::string words_of_google(std::string_view error) {
  const auto words = error.substr(0, error.find(kErrorInfo));
  const auto underlying = words.find(kUnderlying);
  if (words.find(kNoToken) == kNone || underlying == kNone) return std::string{words};
  return text(words.substr(0, words.find(':')),
              ": could not get an access token, because: ", words.substr(underlying + kUnderlying.size()));
}

FailureKind kind_of_plain(std::string_view message) {
  if (const auto status = leading_status(message)) return kind_of_status(*status);
  const auto begins = [&](std::string_view words) { return message.starts_with(words); };
  if (std::any_of(kMissing.begin(), kMissing.end(), begins)) return FailureKind::missing;
  return first_contained(kPlain, message).value_or(FailureKind::unknown);
}

std::string one_line(std::string_view message) {
  std::string line;
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isspace(byte) == 0 && std::iscntrl(byte) == 0) {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += ' ';
    }
  }
  while (line.ends_with(' ') || line.ends_with('.')) line.pop_back();
  return line;
}

void replace_all(std::string& message, std::string_view secret) {
  for (auto found = message.find(secret); found != std::string::npos;
       found = message.find(secret, found + kMask.size())) {
    message.replace(found, secret.size(), kMask);
  }
}

std::string with_small_digits(std::string encoded) {
  for (std::size_t i = 0; i + 2 < encoded.size(); ++i) {
    if (encoded[i] != '%') continue;
    for (const auto digit : {i + 1, i + 2}) encoded[digit] = libtrain::detail::ascii_lower(encoded[digit]);
  }
  return encoded;
}

// The forms that a secret may have in a message, longest first.
std::vector<std::string> forms_of(const std::string& secret) {
  const auto plain = percent_decode(secret).value_or(secret);
  const auto encoded = percent_encode(plain);
  std::vector<std::string> forms{secret, plain, encoded, with_small_digits(encoded), percent_encode(encoded)};
  std::sort(forms.begin(), forms.end(), [](const auto& left, const auto& right) { return left.size() > right.size(); });
  return forms;
}

// Azure quotes the signature of a request with a wrong key.
void mask_quoted_signature(std::string& message) {
  constexpr std::string_view before = "MAC signature found in the HTTP request '";
  const auto found = message.find(before);
  if (found == std::string::npos) return;
  const auto begin = found + before.size();
  const auto end = std::min(message.find('\'', begin), message.size());
  message.replace(begin, end - begin, kMask);
}

// At most `most` bytes of a longer text, without a partial character of UTF-8, which has at most three bytes after its
// first.
std::string_view beginning_of(std::string_view message, std::size_t most) {
  const auto is_within = [&](std::size_t at) { return (static_cast<unsigned char>(message[at]) & 0xc0U) == 0x80U; };
  for (std::size_t end = most; end + 3 >= most; --end) {
    if (!is_within(end)) return message.substr(0, end);
  }
  return message.substr(0, most);
}

}  // namespace

std::string mask_secrets(std::string_view message, const std::vector<std::string>& secrets) {
  std::string masked{message};
  for (const auto& secret : secrets) {
    for (const auto& form : forms_of(secret)) {
      if (form.size() >= kShortestSecret) replace_all(masked, form);
    }
  }
  mask_quoted_signature(masked);
  return libtrain::detail::redact(masked);
}

std::string printable_reason(std::string_view message, const std::vector<std::string>& secrets) {
  auto reason = mask_secrets(one_line(message), secrets);
  if (reason.size() <= kReasonBytes) return reason;
  return std::string{beginning_of(reason, kReasonBytes)} + "...";
}

bool is_about_the_file(FailureKind kind) {
  return kind == FailureKind::missing || kind == FailureKind::changed;
}

StorageFailure classify_failure(std::string_view message, const std::vector<std::string>& secrets) {
  const auto made = [&](FailureKind kind, std::string_view reason) {
    return StorageFailure{.kind = kind, .reason = printable_reason(reason, secrets)};
  };
  if (const auto azure = message.find(kAzure); azure != kNone) {
    const auto error = message.substr(azure + kAzure.size() - 1);
    return made(kind_of_azure(error), error);
  }
  if (const auto aws = message.find(kAws); aws != kNone) {
    return made(kind_of_aws(message.substr(aws + kAws.size())), message.substr(aws));
  }
  if (const auto google = message.find(kGoogle); google != kNone) {
    const auto error = message.substr(google + kGoogle.size());
    return made(kind_of_google(error), words_of_google(error));
  }
  return made(kind_of_plain(message), message);
}

}  // namespace libtrain::data::detail
