#include <libtrain/base/detail/redact.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

namespace libtrain::detail {
namespace {

constexpr std::string_view kMask = "***";
constexpr auto kNone = std::string_view::npos;

bool is_space(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}
bool is_alnum(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}
bool is_quote(char c) {
  return c == '"' || c == '\'' || c == '`';
}
bool is_one_of(char c, std::string_view set) {
  return set.find(c) != kNone;
}

std::string lower(std::string_view name) {
  std::string result{name};
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

/// "AZUREML_RUN_TOKEN" and "azuremlRunToken" are both {"azureml", "run", "token"}.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words{""};
  char previous = '_';
  for (const char c : name) {
    const bool camel_hump =
        std::isupper(static_cast<unsigned char>(c)) && std::islower(static_cast<unsigned char>(previous));
    if ((camel_hump || !is_alnum(c)) && !words.back().empty()) words.emplace_back();
    if (is_alnum(c)) words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    previous = c;
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

bool contains(const auto& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

/// The word "token" is a secret in "run_token" and a piece of text in "pad_token_id".
bool token_is_secret(const std::vector<std::string>& words, std::size_t position) {
  static constexpr std::array<std::string_view, 9> text_before{"bos", "eos", "pad",     "mask", "cls",
                                                               "sep", "unk", "special", "per"};
  static constexpr std::array<std::string_view, 15> text_after{
      "id",     "ids",   "type", "count", "length", "size", "embedding", "embeddings",
      "expiry", "index", "dim",  "limit", "weight", "bias", "classifier"};
  if (position > 0 && contains(text_before, words[position - 1])) return false;
  return position + 1 == words.size() || !contains(text_after, words[position + 1]);
}

/// The end of the URL that starts at `start`: white space, or the closing quote if the URL is quoted.
std::size_t url_end(std::string_view message, std::size_t start) {
  const char quote = start > 0 && is_quote(message[start - 1]) ? message[start - 1] : '\0';
  std::size_t end = start;
  for (; end < message.size() && !is_space(message[end]); ++end) {
    const bool closes =
        end + 1 == message.size() || is_space(message[end + 1]) || is_one_of(message[end + 1], ",.;:)]}");
    if (quote != '\0' && message[end] == quote && closes) return end;
  }
  while (end > start && is_one_of(message[end - 1], "'\"`),.;]}>")) --end;
  return end;
}

/// The end of the user:password part of a URL (its '@'), given the text after "://"; kNone if there is none to hide.
std::size_t user_info_end(std::string_view scheme, std::string_view rest) {
  const auto authority = rest.substr(0, rest.find_first_of("/?#"));
  const auto at = authority.rfind('@');
  if (at != kNone) {
    // A bare name is a secret in https://TOKEN@host and a container in abfss://container@account.
    const bool hide = authority.substr(0, at).find(':') != kNone || scheme.substr(0, 4) == "http";
    return hide ? at : kNone;
  }
  // A password that holds an unescaped '/', '?' or '#' looks like a port that is not a number.
  const auto colon = authority.rfind(':');
  if (colon == kNone || authority.front() == '[') return kNone;
  const auto port = authority.substr(colon + 1);
  const bool is_port = std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
  return is_port ? kNone : rest.rfind('@');
}

std::string mask_url(std::string_view scheme, std::string_view rest) {
  std::string result{scheme};
  result += "://";
  if (const auto at = user_info_end(scheme, rest); at != kNone) {
    result += kMask;
    rest.remove_prefix(at);
  }
  const auto query = rest.find('?');
  result += rest.substr(0, query);
  if (query != kNone && query + 1 < rest.size()) result.append("?").append(kMask);
  return result;
}

std::string mask_urls(std::string_view message) {
  std::string result;
  std::size_t done = 0;
  for (auto found = message.find("://"); found != kNone; found = message.find("://", std::max(found + 3, done))) {
    std::size_t start = found;
    while (start > done && (is_alnum(message[start - 1]) || is_one_of(message[start - 1], "+.-"))) --start;
    if (start == found) continue;
    const auto end = std::max(url_end(message, start), found + 3);
    result += message.substr(done, start - done);
    result += mask_url(message.substr(start, found - start), message.substr(found + 3, end - found - 3));
    done = end;
  }
  result += message.substr(done);
  return result;
}

std::size_t skip(std::string_view message, std::size_t position, std::string_view set) {
  const auto next = message.find_first_not_of(set, position);
  return next == kNone ? message.size() : next;
}

/// The beginning of the value that belongs to a key ending at `key_end`; kNone if no value follows.
std::size_t value_start(std::string_view message, std::string_view key, std::size_t key_end) {
  auto position = skip(message, skip(message, key_end, "\\\"'`"), " \t");
  if (position >= message.size()) return kNone;
  const bool scope_operator = message.substr(position, 2) == "::";
  if (is_one_of(message[position], "=:") && !scope_operator) return skip(message, position, "=:> \t");
  if (message.substr(position, 3) == "is " && position + 3 < message.size()) {
    const auto value = skip(message, position + 3, " \t");
    return value < message.size() && is_quote(message[value]) ? value : kNone;
  }
  const bool option = key.substr(0, 2) == "--" && position > key_end && message[position] != '-';
  return option ? position : kNone;
}

/// The end of the value that begins at `start`. Moves `start` past an opening quote.
std::size_t value_end(std::string_view message, std::string_view key, std::size_t& start) {
  const bool escaped = message.substr(start, 1) == "\\" && start + 1 < message.size() && is_quote(message[start + 1]);
  if (escaped) ++start;
  if (start < message.size() && is_quote(message[start])) {
    const char quote = message[start++];
    for (auto end = start; end < message.size(); ++end) {
      if (message[end] == '\\' && !escaped) {
        ++end;
      } else if (message[end] == quote) {
        return escaped && end > start && message[end - 1] == '\\' ? end - 1 : end;
      }
    }
    return message.size();
  }
  // "Authorization: Bearer abc" is two words.
  const auto end = message.find_first_of(lower(key).ends_with("authorization") ? "\r\n\"'" : " \t\r\n;&", start);
  return end == kNone ? message.size() : end;
}

/// "Bearer abcdef..." without a key before it.
bool is_bearer(std::string_view key, std::string_view after) {
  constexpr std::size_t kMinToken = 16;
  if (lower(key) != "bearer" || after.empty() || after.front() != ' ') return false;
  return std::min(after.find_first_of(" \t\r\n", 1), after.size()) > kMinToken;
}

std::string mask_values(std::string_view message) {
  std::string result;
  std::size_t position = 0;
  const auto in_key = [](char c) { return is_alnum(c) || is_one_of(c, "_-."); };
  while (position < message.size()) {
    auto key_end = position;
    while (key_end < message.size() && in_key(message[key_end])) ++key_end;
    if (key_end == position) {
      result += message[position++];
      continue;
    }
    const auto key = message.substr(position, key_end - position);
    auto start = kNone;
    if (looks_secret(key)) start = value_start(message, key, key_end);
    if (is_bearer(key, message.substr(key_end))) start = key_end + 1;
    if (start == kNone || start >= message.size()) {
      result += key;
      position = key_end;
      continue;
    }
    const auto end = value_end(message, key, start);
    result += message.substr(position, start - position);
    if (end > start) result += kMask;
    position = end;
  }
  return result;
}

}  // namespace

bool looks_secret(std::string_view name) {
  static constexpr std::array<std::string_view, 17> parts{
      "password",      "passwd",          "passphrase",      "secret",       "credential",      "accountkey",
      "apikey",        "accesskey",       "privatekey",      "sharedkey",    "storagekey",      "signingkey",
      "encryptionkey", "subscriptionkey", "accesssignature", "amzsignature", "connectionstring"};
  static constexpr std::array<std::string_view, 5> last_words{"sig", "sas", "pwd", "authorization", "passcode"};
  const auto words = words_of(name);
  if (words.empty()) return false;
  std::string joined;
  for (const auto& word : words) joined += word;
  if (std::any_of(parts.begin(), parts.end(), [&](std::string_view part) { return joined.find(part) != kNone; })) {
    return true;
  }
  if (contains(last_words, words.back())) return true;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].ends_with("token") && token_is_secret(words, i)) return true;
  }
  return false;
}

std::string redact(std::string_view message) {
  return mask_values(mask_urls(message));
}

std::string redact_value(std::string_view name, std::string_view value) {
  return looks_secret(name) ? "***" : redact(value);
}

}  // namespace libtrain::detail
