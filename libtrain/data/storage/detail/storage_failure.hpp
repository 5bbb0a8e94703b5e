#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace libtrain::data::detail {

/// What a failed request to an object store means.
enum class FailureKind {
  missing,      ///< no such file, folder, container or bucket
  refused,      ///< the store knows who asks, or that nobody does, and says no
  changed,      ///< the file is not any more what it was when it was opened
  unreachable,  ///< no such host, or nobody to sign the request as: for good unless it worked before
  transient,    ///< network trouble, a server that is busy, broken or restarting: may pass
  unknown,      ///< anything else, such as expired credentials, a wrong clock or certificate: says nothing of the file
};

struct StorageFailure {
  FailureKind kind = FailureKind::unknown;
  std::string reason;  ///< one line in the store's words, shortened, nothing secret in it
};

/// Whether a failure of this kind says something about the file that was asked for, which may then count as a bad
/// sample. Nothing else does: what is not recognised is no reason to leave a good sample out.
bool is_about_the_file(FailureKind kind);

/// Makes sense of the message of an Arrow status (or of an exception that came through Arrow), for the forms in which
/// Arrow 19 to 26 hands on what Azure's, AWS's and Google's clients say. None of `secrets` gets into the reason.
StorageFailure classify_failure(std::string_view message, const std::vector<std::string>& secrets);

/// `message` without the queries of its URLs and what else `redact` masks, without `secrets` as they are, decoded or
/// encoded once or twice, and without the signature that Azure quotes where a key is wrong.
std::string mask_secrets(std::string_view message, const std::vector<std::string>& secrets);

/// `message` on one line and without what is secret, cut after some 400 bytes.
std::string printable_reason(std::string_view message, const std::vector<std::string>& secrets);

}  // namespace libtrain::data::detail
