#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <libtrain/text/detail/added_token_finder.hpp>
#include <libtrain/text/detail/tokenizer_definition.hpp>
#include <libtrain/text/detail/word_cache.hpp>
#include <libtrain/text/detail/word_merger.hpp>
#include <libtrain/text/detail/word_splitter.hpp>
#include <libtrain/text/tokenizer.hpp>

namespace libtrain::detail {

/// The tokens of a text, in memory that is kept from text to text.
struct TextTokens {
  std::vector<std::uint32_t> ids = {};  ///< the first `size` of them
  std::size_t size = 0;
  std::vector<TextRange> offsets = {};  ///< of each; empty if they are not wanted
};

/// What encoding needs besides the tables; used by one thread at a time.
struct EncodeWorkspace {
  WordSplitter::Matches matches;
  WordMerger merger = {};
  WordCache cache = {};
  std::string prefixed = {};
  std::array<TextTokens, 2> tokens = {};

  /// The memory of what grows with the text, all but the matches and the cache; and gives it back.
  std::size_t growing_bytes() const;
  void release() noexcept;
};

/// A tokenizer's tables. Immutable but for a pool of workspaces, of which each thread borrows one for a call.
class TokenizerCore {
 public:
  /// The definition must be consistent, as the reader and the trainer make it.
  explicit TokenizerCore(TokenizerDefinition definition);

  TokenizerCore(const TokenizerCore&) = delete;  // its tables point to each other
  TokenizerCore& operator=(const TokenizerCore&) = delete;

  const TokenizerDefinition& definition() const { return definition_; }

  /// Returns a workspace to the pool when it goes.
  class Lease {
   public:
    explicit Lease(const TokenizerCore& core) : core_(core), workspace_(core.take()) {}
    Lease(const Lease&) = delete;  // the workspace would be returned twice
    Lease& operator=(const Lease&) = delete;
    ~Lease() { core_.give_back(std::move(workspace_)); }
    EncodeWorkspace& operator*() { return *workspace_; }

   private:
    const TokenizerCore& core_;
    std::unique_ptr<EncodeWorkspace> workspace_;
  };

  /// The tokens of a text without special tokens around it. Throws UsageError for 2^31 bytes or more,
  /// as they are or with U+FFFD for invalid ones.
  void encode(std::string_view text, bool with_offsets, EncodeWorkspace& workspace, TextTokens& tokens) const;

  bool has(std::int64_t id) const;
  bool is_special(std::int64_t id) const { return is_special_[static_cast<std::size_t>(id)]; }
  std::string_view bytes_of(std::int64_t id) const { return bytes_[static_cast<std::size_t>(id)]; }
  const std::uint32_t* find(std::string_view token) const;
  const SpecialTokens& special_tokens() const { return special_tokens_; }

 private:
  struct Spaces {
    std::uint32_t leading = 0;
    std::uint32_t trailing = 0;
  };
  struct Task;
  struct Words;

  std::unique_ptr<EncodeWorkspace> take() const;
  void give_back(std::unique_ptr<EncodeWorkspace> workspace) const noexcept;

  void encode_valid(Task& task) const;
  void encode_words(Task& task, std::size_t begin, std::size_t end) const;
  void append_word(Task& task, const Words& words, std::string_view word) const;
  template <typename Length>
  void append_offsets(Task& task, const Words& words, const Length* lengths, std::size_t count) const;
  void append_added(Task& task, const AddedToken& token, std::size_t begin, std::size_t end) const;
  void trim(std::string_view text, Spaces spaces, bool is_first_token, TextRange& range) const;

  const TokenizerDefinition definition_;
  std::unordered_map<std::string_view, std::uint32_t> ids_ = {};
  std::vector<std::string> bytes_ = {};  // by id, for decoding
  std::vector<bool> is_special_ = {};    // by id
  std::vector<Spaces> spaces_ = {};      // by id, at the ends of a token
  SpecialTokens special_tokens_ = {};
  std::array<std::uint32_t, 256> ids_of_bytes_ = {};
  MergeTable merges_;
  AddedTokenFinder first_finder_;
  AddedTokenFinder second_finder_;  // of tokens that are `normalized`
  WordSplitter splitter_ = {};

  mutable std::mutex mutex_ = {};
  mutable std::vector<std::unique_ptr<EncodeWorkspace>> idle_ = {};  // guarded by mutex_
};

}  // namespace libtrain::detail
