#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/base/detail/redact.hpp>
#include <libtrain/base/text.hpp>

#include <tests/support/fresh_seed.hpp>

namespace libtrain {
namespace {

TEST(Redact, LeavesOrdinaryTextAlone) {
  const std::vector<std::string> ordinary{
      "",
      "key 'layer1.weight' is missing",
      "the signature of forward(Tensor) -> Tensor; design: simple",
      "signature: (Tensor, int)",
      "tokens=5 tokens: 128 tokenizer=bpe pad_token_id=1 token_count: 7 cls_token: <s>",
      "encoder.embeddings.token_embedding.weight: [50265, 768]",
      "/data/train/secret/of/monkey.png is truncated at byte 17",
      "RANK=3 WORLD_SIZE=8 MASTER_ADDR=10.0.0.4 ratio 3:4 at 12:30:01",
      "std::vector<token::kind> and secret::lives",
      "file:///shared/rendezvous/run-17 and tcp://[fe80::1]:29500",
      "abfss://images@account.dfs.core.windows.net/train/a.tar",
      "https://host:8443/a/b/c.tar.gz, s3://bucket/key/part-0001.parquet.",
      "the run token is missing",
      "?x=1&y=2",
      "://",
      "bearer of news",
  };
  for (const auto& message : ordinary) EXPECT_EQ(detail::redact(message), message);
}

TEST(Redact, MasksQueriesAndUserInformationOfUrls) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"get https://a.blob.core.windows.net/c/x?sv=2022&sig=abc%3D failed",
       "get https://a.blob.core.windows.net/c/x?*** failed"},
      {"'https://a/x?sig=abc', then b", "'https://a/x?***', then b"},
      {"(see https://a/x?sig=abc).", "(see https://a/x?***)."},
      {"https://user:pass@host/path", "https://***@host/path"},
      {"https://ghp_abc@github.com/a/b", "https://***@github.com/a/b"},
      {"https://user:pa/ss?@host/path", "https://***@host/path"},
      {"https://user:p@ss@host:80/path", "https://***@host:80/path"},
      {"https://host/cb#access_token=abc", "https://host/cb#access_token=***"},
      {"two https://a/b?c=d https://e/f?g=h", "two https://a/b?*** https://e/f?***"},
  };
  for (const auto& [message, expected] : cases) EXPECT_EQ(detail::redact(message), expected);
}

TEST(Redact, MasksValuesOfSecretNames) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"AccountName=me;AccountKey=abc+/==;EndpointSuffix=core.windows.net",
       "AccountName=me;AccountKey=***;EndpointSuffix=core.windows.net"},
      {"sv=2022&sig=abc%3D&se=2030", "sv=2022&sig=***&se=2030"},
      {"AZUREML_RUN_TOKEN=ey.J-x_y RANK=0", "AZUREML_RUN_TOKEN=*** RANK=0"},
      {"password: hunter2", "password: ***"},
      {"password = 'hunter 2' next", "password = '***' next"},
      {R"({"client_secret": "a \" b", "port": 1})", R"({"client_secret": "***", "port": 1})"},
      {R"({\"api_key\": \"abc\", \"port\": 1})", R"({\"api_key\": \"***\", \"port\": 1})"},
      {"MLFLOW_TRACKING_TOKEN is 'abc', which is bad", "MLFLOW_TRACKING_TOKEN is '***', which is bad"},
      {"--password hunter2 --rank 3", "--password *** --rank 3"},
      {"Authorization: Bearer abc.def", "Authorization: ***"},
      {"sent Bearer abcdefghijklmnopqrstuvwxyz to host", "sent Bearer *** to host"},
      {"password=\"never closed", "password=\"***"},
  };
  for (const auto& [message, expected] : cases) EXPECT_EQ(detail::redact(message), expected);
}

TEST(Redact, KnowsSecretNames) {
  for (const auto* name : {"AZUREML_RUN_TOKEN", "AZUREML_RUN_TOKEN_RAND", "MLFLOW_TRACKING_TOKEN", "sig", "SIG",
                           "AccountKey", "account_key", "password", "PGPASSWORD", "client_secret", "clientSecret",
                           "AWS_SECRET_ACCESS_KEY", "PMI_SHARED_SECRET", "SharedAccessSignature", "HF_TOKEN", "api-key",
                           "X-Amz-Signature", "Authorization", "accessToken"}) {
    EXPECT_TRUE(detail::looks_secret(name)) << name;
  }
  for (const auto* name : {"", "RANK", "signature", "design", "SIGTERM", "key", "layer1.weight", "tokens", "tokenizer",
                           "pad_token_id", "AZUREML_RUN_TOKEN_EXPIRY", "monkey", "NCCL_DEBUG", "insignificant"}) {
    EXPECT_FALSE(detail::looks_secret(name)) << name;
  }
  // Further names that clouds, databases and web services use.
  for (const auto* name : {"AZURE_STORAGE_KEY", "AZURE_STORAGE_CONNECTION_STRING", "LDAP_PASSWD", "SSH_PASSPHRASE",
                           "awsCredentials", "access_key", "private_key", "SharedKey", "signing-key", "encryptionKey",
                           "Ocp-Apim-Subscription-Key", "blob_sas", "db_pwd", "passcode"}) {
    EXPECT_TRUE(detail::looks_secret(name)) << name;
  }
  // Further names about the tokens of a text.
  for (const auto* name : {"bos_token", "eos_token", "mask_token", "sep_token", "unk_token", "special_token",
                           "loss_per_token", "token_ids", "token_type", "token_length", "token_embeddings",
                           "token_index", "token_dim", "token_limit", "token_bias", "token_classifier"}) {
    EXPECT_FALSE(detail::looks_secret(name)) << name;
  }
}

std::string random_word(std::mt19937_64& random, std::string_view alphabet, std::size_t longest) {
  std::string word;
  for (auto length = random() % (longest + 1); word.size() < length;) word += alphabet[random() % alphabet.size()];
  return word;
}

TEST(Redact, NeverLeaksACanaryFromRandomUrlsAndAssignments) {
  const std::string canary = "C4n4rY";
  const std::string_view plain = "abcXYZ019-_.~%";
  const std::string_view awkward = "abc019-_.~%+=/:;,!$*()";
  const std::array<std::string, 6> schemes{"https", "http", "abfss", "s3", "tcp", "azureml"};
  const std::array<std::string, 6> keys{"AccountKey", "sig", "AZUREML_RUN_TOKEN", "password", "client_secret", "Pwd"};
  const std::array<std::string, 5> before{"", "error: ", "(", "'", "\""};
  const test::FreshSeed seed;
  std::mt19937_64 random{seed.value};
  for (int i = 0; i < 20000; ++i) {
    const auto& quote = before[random() % before.size()];
    const auto host = text("h", random_word(random, "abc0-", 8), ".net");
    const auto secret = random_word(random, plain, 9) + canary + random_word(random, plain, 9);
    auto message = random_word(random, "ab ,:=", 12) + " " + quote + schemes[random() % schemes.size()] + "://";
    switch (random() % 4) {
      case 0:  // a query, whatever it holds
        message += host + "/" + random_word(random, plain, 12) + "?" + random_word(random, awkward, 20) + secret +
                   random_word(random, awkward, 20);
        break;
      case 1:  // a password
        message += "user:" + secret + "@" + host + "/" + random_word(random, plain, 12);
        break;
      case 2:  // a user, a password and a query
        message += secret + ":" + secret + "@" + host + "?x=" + secret;
        break;
      default:  // a connection string
        message += host + ";" + keys[random() % keys.size()] + "=" + secret + random_word(random, "abc+/=", 9) + ";a=b";
    }
    message += (quote == "(" ? ")" : quote == "error: " ? "." : quote) + random_word(random, " ab,", 12);
    const auto masked = detail::redact(message);
    ASSERT_EQ(masked.find(canary), std::string::npos) << message << "\nbecame\n" << masked;
    ASSERT_EQ(detail::redact(masked), masked) << message;
  }
}

TEST(Redact, SurvivesArbitraryBytes) {
  const test::FreshSeed seed;
  std::mt19937_64 random{seed.value};
  for (int i = 0; i < 20000; ++i) {
    std::string bytes;
    for (auto length = random() % 40; bytes.size() < length;) {
      constexpr std::string_view frequent = ":/?@=\"'\\ sig;\xff";
      bytes += random() % 2 == 0 ? frequent[random() % frequent.size()] : static_cast<char>(random() % 256);
    }
    EXPECT_LE(detail::redact(bytes).size(), 4 * bytes.size() + 16);
  }
}

}  // namespace
}  // namespace libtrain
