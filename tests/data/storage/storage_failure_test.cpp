#include <libtrain/data/storage/detail/storage_failure.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Case {
  std::string message;
  FailureKind kind;
};

// Made up after cpp/src/arrow/filesystem/azurefs.cc and sdk/core/azure-core/src/http/curl/curl.cpp.
std::string azure(const std::string& error) {
  return "GetProperties failed for 'https://data1.blob.core.windows.net/images/x?sv=1&sig=C4n4rY'. Cannot initialise "
         "an "
         "ObjectInputFile without knowing the file size. Azure Error: " +
         error;
}

TEST(StorageFailure, UnderstandsWhatAzureSays) {
  const std::vector<Case> cases{
      {azure("[BlobNotFound] 404 The specified blob does not exist."), FailureKind::missing},
      {azure("[] 404 The specified blob does not exist.\n\nRequest ID: 7"), FailureKind::missing},
      {azure("[AuthenticationFailed] 403 Server failed to authenticate the request."), FailureKind::refused},
      {azure("[AuthorizationPermissionMismatch] 403 This request is not authorized."), FailureKind::refused},
      {azure("[NoAuthenticationInformation] 401 Server failed to authenticate."), FailureKind::refused},
      {azure("[ConditionNotMet] 412 The condition specified using HTTP conditional header(s) is not met."),
       FailureKind::changed},
      {azure("[InvalidRange] 416 The range specified is invalid."), FailureKind::changed},
      {azure("[ServerBusy] 503 The server is busy."), FailureKind::transient},
      {azure("[OperationTimedOut] 500 Operation could not be completed within the permitted time."),
       FailureKind::transient},
      {azure("[] 429 Too Many Requests"), FailureKind::transient},
      {azure("[] 408 Request Timeout"), FailureKind::transient},
      {azure("[] 504 Gateway Timeout"), FailureKind::transient},
      {azure("[InvalidHeaderValue] 400 The value for one of the HTTP headers is not in the correct format."),
       FailureKind::unknown},
      {azure("[ContainerBeingDeleted] 409 The specified container is being deleted."), FailureKind::unknown},
      {azure("[] Fail to get a new connection for: http://127.0.0.1:10000. Couldn't connect to server"),
       FailureKind::transient},
      {azure("[] Fail to get a new connection for: https://data1.blob.core.windows.net. Timeout was reached"),
       FailureKind::transient},
      {azure("[] Error while sending request. Failed sending data to the peer"), FailureKind::transient},
      {azure("[] Connection was closed by the server while trying to read a response"), FailureKind::transient},
      {azure("[] Error while reading from network socket. CURLE code: 56. Failure when receiving data from the peer"),
       FailureKind::transient},
      {azure("[] Timeout waiting for socket to read."), FailureKind::transient},
      {azure("[] Error when reading body stream."), FailureKind::transient},
      {azure("[] Fail to get a new connection for: https://dta1.blob.core.windows.net. Couldn't resolve host name"),
       FailureKind::unreachable},
      {azure("[] Fail to get a new connection for: https://dta1.blob.core.windows.net. Could not resolve hostname"),
       FailureKind::unreachable},
      {azure("[] Fail to get a new connection for: https://data1.blob.core.windows.net. SSL peer certificate or SSH "
             "remote key was not OK. Underlying error: self signed certificate"),
       FailureKind::unknown},
      {"Check for Hierarchical Namespace support on 'https://data1.dfs.core.windows.net/images/?sig=C4n4rY' failed: "
       "N5Azure4Core11Credentials23AuthenticationExceptionE: Failed to get token from DefaultAzureCredential.",
       FailureKind::unreachable},
      {"ManagedIdentityCredential: Connection timed out", FailureKind::unreachable},
      {"GetToken(): error response: 400 Bad Request\n\n{\"error\": \"invalid_request\"}", FailureKind::unreachable},
      {"403 Forbidden", FailureKind::refused},
  };
  for (const auto& entry : cases) {
    EXPECT_EQ(classify_failure(entry.message, {}).kind, entry.kind) << entry.message;
  }
}

TEST(StorageFailure, UnderstandsWhatAwsSays) {
  const auto aws = [](const std::string& error) {
    return "When reading information for key 'x' in bucket 'b': AWS Error " + error;
  };
  const std::vector<Case> cases{
      {aws("NO_SUCH_KEY during GetObject operation: The specified key does not exist."), FailureKind::missing},
      {aws("NO_SUCH_BUCKET during ListObjectsV2 operation: The specified bucket does not exist"), FailureKind::missing},
      {aws("ACCESS_DENIED during HeadObject operation: No response body."), FailureKind::refused},
      {aws("SIGNATURE_DOES_NOT_MATCH during GetObject operation: ..."), FailureKind::refused},
      {aws("UNKNOWN (HTTP status 403) during HeadObject operation: No response body."), FailureKind::refused},
      {aws("UNKNOWN (HTTP status 416) during GetObject operation: The requested range is not satisfiable"),
       FailureKind::changed},
      {aws("UNKNOWN (HTTP status 502) during GetObject operation: Bad Gateway"), FailureKind::transient},
      {aws("UNKNOWN (HTTP status 301) during HeadObject operation: moved"), FailureKind::unknown},
      {aws("SLOW_DOWN during GetObject operation: Please reduce your request rate."), FailureKind::transient},
      {aws("NETWORK_CONNECTION during GetObject operation: curlCode: 7, Couldn't connect to server"),
       FailureKind::transient},
      {aws("NETWORK_CONNECTION during GetObject operation: curlCode: 6, Couldn't resolve host name"),
       FailureKind::unreachable},
      {aws("[code 134] during GetObject operation: what is that"), FailureKind::unknown},
  };
  for (const auto& entry : cases) {
    EXPECT_EQ(classify_failure(entry.message, {}).kind, entry.kind) << entry.message;
  }
}

// As google-cloud-cpp 2.37 says that nothing was sent, for want of a token.
std::string no_token(const std::string& status, const std::string& why) {
  const auto words = text(
      "Could not create a OAuth2 access token to authenticate the request. The request was not sent, as such an access "
      "token is required to complete the request successfully. Learn more about Google Cloud authentication at "
      "https://cloud.google.com/docs/authentication. The underlying error message was: ",
      why);
  return text("google::cloud::Status(", status, ": Permanent error, with a last message of ", words,
              " error_info={reason=, domain=, metadata={gcloud-cpp.retry.original-message=", words, "}})");
}

TEST(StorageFailure, UnderstandsWhatGoogleAndArrowSay) {
  const std::vector<Case> cases{
      {"google::cloud::Status(NOT_FOUND: Permanent error in GetObjectMetadata: Not Found)", FailureKind::missing},
      {"google::cloud::Status(UNAUTHENTICATED: Invalid Credentials)", FailureKind::refused},
      {"google::cloud::Status(PERMISSION_DENIED: no access)", FailureKind::refused},
      {"google::cloud::Status(OUT_OF_RANGE: ...)", FailureKind::changed},
      {"google::cloud::Status(FAILED_PRECONDITION: conditionNotMet)", FailureKind::changed},
      {"google::cloud::Status(DEADLINE_EXCEEDED: ...)", FailureKind::transient},
      {"google::cloud::Status(INTERNAL: ...)", FailureKind::transient},
      {"google::cloud::Status(ABORTED: ...)", FailureKind::transient},
      {"google::cloud::Status(UNAVAILABLE: Retry policy exhausted)", FailureKind::transient},
      {"google::cloud::Status(RESOURCE_EXHAUSTED: 429)", FailureKind::transient},
      {"google::cloud::Status(INVALID_ARGUMENT: bucket)", FailureKind::unknown},
      {"google::cloud::Status(UNAVAILABLE: ... PerformWork() - CURL error [7]=Could not connect to server)",
       FailureKind::transient},
      {"google::cloud::Status(UNAVAILABLE: ... PerformWork() - CURL error [6]=Could not resolve hostname)",
       FailureKind::unreachable},
      {no_token("UNAVAILABLE", "PerformWork() - CURL error [7]=Could not connect to server"), FailureKind::transient},
      {no_token("UNAVAILABLE", "PerformWork() - CURL error [6]=Could not resolve hostname"), FailureKind::unreachable},
      {no_token("UNKNOWN", "Cannot open credentials file /home/me/none.json"), FailureKind::unreachable},
      {no_token("INVALID_ARGUMENT", "{\"error\": \"invalid_grant\"}"), FailureKind::unreachable},
      {no_token("NOT_FOUND", "no service account"), FailureKind::unreachable},
      {no_token("UNAUTHENTICATED", "{\"error\": \"invalid_client\"}"), FailureKind::refused},
      {"Path does not exist 'bucket/credentials.jpg'", FailureKind::missing},
      {"No such file or directory 'bucket/x'", FailureKind::missing},
      {"cannot open: No such file or directory '/var/run/secrets/token'", FailureKind::unknown},
      {"Not a directory: 'images/x'", FailureKind::unknown},
      {"malloc of size 64 failed", FailureKind::unknown},
      {"", FailureKind::unknown},
  };
  for (const auto& entry : cases) {
    EXPECT_EQ(classify_failure(entry.message, {}).kind, entry.kind) << entry.message;
  }
}

// What each store says once a session's token has expired, on a machine whose clock is wrong, and where a certificate
// is not trusted: none of it is a reason to take another sample.
TEST(StorageFailure, BlamesNoFileForExpiredCredentialsAClockOrACertificate) {
  const auto aws = [](const std::string& error) {
    return "When reading information for key 'x' in bucket 'b': AWS Error " + error;
  };
  const std::vector<std::string> messages{
      aws("UNKNOWN (HTTP status 400) during HeadObject operation: No response body."),
      aws("UNKNOWN (HTTP status 400) during ListObjectsV2 operation: Unable to parse ExceptionName: ExpiredToken "
          "Message: The provided token has expired."),
      aws("REQUEST_TIME_TOO_SKEWED during GetObject operation: The difference between the request time and the current "
          "time is too large."),
      aws("NETWORK_CONNECTION during HeadObject operation: curlCode: 60, SSL peer certificate or SSH remote key was "
          "not "
          "OK"),
      aws("NETWORK_CONNECTION during HeadObject operation: curlCode: 77, Problem with the SSL CA cert (path? access "
          "rights?)"),
      aws("UNKNOWN during GetObject operation: no status at all"),
      azure(
          "[AuthenticationFailed] 403 Server failed to authenticate the request. Signature not valid in the specified "
          "time frame: Start [...] - Expiry [...] - Current [...]"),
      azure("[InvalidAuthenticationInfo] 400 Authentication information is not given in the correct format."),
      azure("[] Fail to get a new connection for: https://data1.blob.core.windows.net. SSL peer certificate or SSH "
            "remote key was not OK. Underlying error: certificate has expired"),
      azure("[AccountIsDisabled] 409 The specified account is disabled."),
      "google::cloud::Status(INVALID_ARGUMENT: Permanent error GetObjectMetadata: invalid_grant)",
      "google::cloud::Status(UNKNOWN: PerformWork() - CURL error [60]=SSL peer certificate or SSH remote key was not "
      "OK)",
      "google::cloud::Status(UNAUTHENTICATED: Invalid Credentials)",
      "WorkloadIdentityCredential: No such file or directory '/var/run/secrets/azure/tokens/azure-identity-token'",
      "std::bad_alloc",
      "\x01\xff anything at all",
  };
  for (const auto& message : messages) {
    EXPECT_FALSE(is_about_the_file(classify_failure(message, {}).kind)) << message;
  }
  EXPECT_TRUE(is_about_the_file(classify_failure(aws("NO_SUCH_KEY during GetObject operation: gone."), {}).kind));
  EXPECT_TRUE(is_about_the_file(classify_failure(azure("[ConditionNotMet] 412 The condition is not met."), {}).kind));
  EXPECT_TRUE(is_about_the_file(classify_failure("google::cloud::Status(NOT_FOUND: Not Found)", {}).kind));
}

TEST(StorageFailure, GivesAReasonOnOneLineInTheStoresWords) {
  EXPECT_EQ(
      classify_failure(azure("[BlobNotFound] 404 The specified blob does not exist.\r\n  Gone.\nRequest ID: 7\n"), {})
          .reason,
      "[BlobNotFound] 404 The specified blob does not exist. Gone. Request ID: 7");
  EXPECT_EQ(classify_failure("When reading: AWS Error SLOW_DOWN during GetObject operation: wait.", {}).reason,
            "AWS Error SLOW_DOWN during GetObject operation: wait");
  EXPECT_EQ(classify_failure("google::cloud::Status(NOT_FOUND: Not Found error_info={reason=, domain=})", {}).reason,
            "NOT_FOUND: Not Found");
  EXPECT_EQ(classify_failure(no_token("UNKNOWN", "Cannot open credentials file /home/me/none.json"), {}).reason,
            "UNKNOWN: could not get an access token, because: Cannot open credentials file /home/me/none.json");
  EXPECT_LT(classify_failure(std::string(100'000, 'x'), {}).reason.size(), 500U);
}

TEST(StorageFailure, MasksSecretsInEveryFormThatMessagesHaveThem) {
  // As it stands in a location, and as clients may decode, encode or encode it again.
  const std::string signature = "C4n4rY%2Fx%2By%3D";
  const std::string token = "sv=2022-11-02&se=2030-01-01T00%3A00%3A00Z&sp=rl&sig=" + signature;
  const std::string key = "S3cr3t+K3y/abcdefghijklmnop==";
  const std::vector<std::string> secrets{token, signature, key};
  const std::vector<std::string> messages{
      azure("[AuthenticationFailed] 403 no."),
      text("Failed to list blobs in a directory: images: https://data1.blob.core.windows.net/images?", token,
           " Azure Error: [AuthorizationFailure] 403 no"),
      text("get https://host/x?", token),
      text("query ", token),
      text("signature C4n4rY/x+y= of the request"),
      text("encoded C4n4rY%252Fx%252By%253D twice"),
      text("small C4n4rY%2fx%2by%3d digits"),
      text("redirected to /login?next=%2Fx%3Fsig%3D", signature),
      text("key ", key, " is wrong"),
      text("{\"accountKey\":\"", key, "\"}"),
      "The MAC signature found in the HTTP request 'C4n4rYabcdefghijklmnopqrstuvwxyz=' is not the same as any",
      "The MAC signature found in the HTTP request 'C4n4rY",
  };
  for (const auto& message : messages) {
    const auto masked = mask_secrets(message, secrets);
    EXPECT_THAT(masked, Not(HasSubstr("C4n4rY"))) << message;
    EXPECT_THAT(masked, Not(HasSubstr("S3cr3t"))) << message;
    EXPECT_THAT(classify_failure(message, secrets).reason, Not(HasSubstr("C4n4rY"))) << message;
  }
  EXPECT_EQ(mask_secrets("nothing secret in it", secrets), "nothing secret in it");
}

TEST(StorageFailure, CutsAReasonOnlyAfterMaskingIt) {
  const std::string key = "S3cr3t+K3y/abcdefghijklmnop==";
  for (std::size_t before = 370; before < 410; ++before) {
    const auto reason = printable_reason(text(std::string(before, '-'), ' ', key), {key});
    EXPECT_THAT(reason, Not(HasSubstr("S3"))) << before;
  }
}

TEST(StorageFailure, CutsAReasonBetweenTwoCharacters) {
  for (const std::string character : {"\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x90\x8e"}) {
    for (std::size_t before = 396; before <= 400; ++before) {
      const std::string start(before, '-');
      std::string message = start;
      for (int i = 0; i < 10; ++i) message += character;
      std::string expected = start;
      for (std::size_t i = 0; i < (400 - before) / character.size(); ++i) expected += character;
      EXPECT_EQ(printable_reason(message, {}), expected + "...") << before;
    }
  }
  // What is no UTF-8 is cut after 400 bytes.
  EXPECT_EQ(printable_reason(std::string(500, '\x80'), {}), std::string(400, '\x80') + "...");
}

TEST(StorageFailure, TakesVeryShortSecretsForText) {
  EXPECT_EQ(mask_secrets("a banana", {"a", "", "an"}), "a banana");
}

}  // namespace
}  // namespace libtrain::data::detail
