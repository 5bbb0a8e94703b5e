#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace libtrain::data::detail {

/// The meaning of a failed request to an object store.
enum class FailureKind {
  missing,      ///< no such file, folder, container or bucket
  refused,      ///< the store denies access, also to anonymous requests
  changed,      ///< the file has changed since it was opened
  unreachable,  ///< unknown host, or no credentials: permanent unless an earlier request succeeded
  transient,    ///< network error, or a server that is busy, broken or restarting: may succeed later
  unknown,      ///< any other error, such as expired credentials, a wrong clock or certificate: not about the file
};

struct StorageFailure {
  FailureKind kind = FailureKind::unknown;
  std::string reason;  ///< one line in the store's words, shortened and without secrets
};

/// Whether a failure of this kind is about the requested file, which may then count as a bad sample. An unknown failure
/// is not: it is no reason to leave out a good sample.
bool is_about_the_file(FailureKind kind);

/// Classifies the message of an Arrow status (or of an exception that passed through Arrow), in the forms in which
/// Arrow 19 to 26 forwards the messages of Azure's, AWS's and Google's clients. The reason contains none of `secrets`.
StorageFailure classify_failure(std::string_view message, const std::vector<std::string>& secrets);

/// `message` without the queries of its URLs and everything else that redact() masks, without `secrets` in plain,
/// decoded, or once or twice encoded form, and without the signature that Azure quotes if a key is wrong.
std::string mask_secrets(std::string_view message, const std::vector<std::string>& secrets);

/// `message` on one line, without secrets, cut off after about 400 bytes.
std::string printable_reason(std::string_view message, const std::vector<std::string>& secrets);

}  // namespace libtrain::data::detail
