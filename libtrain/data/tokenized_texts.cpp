#include <libtrain/data/tokenized_texts.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/content_hash.hpp>
#include <libtrain/data/storage/storage.hpp>

namespace libtrain::data {

namespace {

constexpr std::uint64_t kTextsOfAPiece = 1024;
constexpr int kLargestLengthFactor = 7;  // 32 doublings of 7 groups fit into 256

// The tokens of consecutive texts.
struct TokenPiece {
  std::vector<std::uint32_t> ids = {};
  std::vector<std::uint64_t> lengths = {};
};

std::uint32_t checked_id(std::int64_t id) {
  if (id >= 0 && id <= std::numeric_limits<std::uint32_t>::max()) return static_cast<std::uint32_t>(id);
  throw UsageError(text("The encoder of texts returned the token id ", id, ". Ids are from 0 to 2^32 - 1."));
}

TokenPiece encode_piece(const LabelledTexts& texts, std::uint64_t begin, const TextEncoder& encode) {
  TokenPiece piece;
  const std::uint64_t end = std::min(begin + kTextsOfAPiece, texts.size());
  for (std::uint64_t row = begin; row < end; ++row) {
    const auto ids = encode(texts.text(row), texts.has_pairs() ? std::optional(texts.second_text(row)) : std::nullopt);
    for (const std::int64_t id : ids) piece.ids.push_back(checked_id(id));
    piece.lengths.push_back(ids.size());
  }
  return piece;
}

// What is wrong with a text of so many tokens; empty if nothing is.
std::string fault_of(std::uint64_t length, const TokenizedTextsOptions& options) {
  if (length == 0) return "expected tokens, found none";
  if (options.maximum_tokens && length > *options.maximum_tokens) {
    return text("expected at most ", *options.maximum_tokens, " tokens, found ", length);
  }
  return {};
}

}  // namespace

TokenizedTexts::TokenizedTexts(LabelledTexts texts, const TextEncoder& encode, const TokenizedTextsOptions& options)
    : texts_(std::move(texts)) {
  if (!encode) throw UsageError("TokenizedTexts was given no encoder. Give a function that makes ids of a text.");
  if (options.threads < 1) {
    throw UsageError(text("TokenizedTextsOptions::threads is ", options.threads, ". It must be at least 1."));
  }
  std::vector<TokenPiece> pieces((texts_.size() + kTextsOfAPiece - 1) / kTextsOfAPiece);
  detail::run_concurrently(pieces.size(), static_cast<std::size_t>(options.threads),
                           [&](std::size_t number, const std::stop_token&) {
                             pieces[number] = encode_piece(texts_, number * kTextsOfAPiece, encode);
                           });
  std::uint64_t tokens = 0;
  for (const auto& piece : pieces) tokens += piece.ids.size();
  ids_.reserve(tokens);
  ends_.reserve(texts_.size());
  rows_.reserve(texts_.size());
  std::uint32_t row = 0;
  for (auto& each : pieces) {
    const TokenPiece piece = std::move(each);  // freed before the next one is copied
    auto begin = piece.ids.begin();
    for (const std::uint64_t length : piece.lengths) {
      const auto end = begin + static_cast<std::ptrdiff_t>(length);
      if (const auto fault = fault_of(length, options); fault.empty()) {
        ids_.insert(ids_.end(), begin, end);
        ends_.push_back(ids_.size());
        rows_.push_back(row);
      } else if (options.bad_texts == BadTexts::refuse) {
        throw EnvironmentError(text(texts_.origin(row).path, ": ", fault, ". Truncate texts, or leave such ones out."));
      } else if (first_left_out_.empty()) {
        first_left_out_ = text(texts_.origin(row).path, ": ", fault, ".");
      }
      begin = end;
      ++row;
    }
  }
  if (size() == 0) throw EnvironmentError(text(first_left_out_, " No text is left. Check the tokenizer, or truncate."));
}

TokenSample TokenizedTexts::get(std::uint64_t index, SampleRandom& /*random*/) const {
  const std::uint64_t row = this->row(index);
  const std::uint64_t begin = index == 0 ? 0 : ends_[index - 1];
  TokenSample sample;
  sample.ids.assign(ids_.begin() + static_cast<std::ptrdiff_t>(begin),
                    ids_.begin() + static_cast<std::ptrdiff_t>(ends_[index]));
  switch (texts_.labels()) {
    case TextLabels::classes:
      sample.label = texts_.label(row);
      break;
    case TextLabels::several_classes:
      sample.targets.resize(texts_.classes().size());
      for (const std::uint32_t number : texts_.classes_of(row)) sample.targets[number] = 1;
      break;
    case TextLabels::numbers:
      sample.targets = {static_cast<float>(texts_.number(row))};
      break;
    case TextLabels::none:
      break;
  }
  return sample;
}

DatasetIdentity TokenizedTexts::identity() const {
  ContentHasher hasher;
  hasher.update(std::as_bytes(std::span(ids_)));
  hasher.update(std::as_bytes(std::span(ends_)));
  DatasetIdentity lines = texts_.identity();
  lines.push_back(text(size(), " texts with ", ids_.size(), " tokens with checksum ", to_string(hasher.digest())));
  return lines;
}

std::vector<std::uint32_t> TokenizedTexts::lengths() const {
  std::vector<std::uint32_t> lengths;
  lengths.reserve(ends_.size());
  std::uint64_t begin = 0;
  for (const std::uint64_t end : ends_) {
    lengths.push_back(static_cast<std::uint32_t>(std::min<std::uint64_t>(end - begin, ~std::uint32_t{0})));
    begin = end;
  }
  return lengths;
}

std::vector<std::uint8_t> length_groups(std::span<const std::uint32_t> lengths, int factor) {
  if (factor < 1 || factor > kLargestLengthFactor) {
    throw UsageError(text("The factor of the length groups is ", factor, ". Set it to a number from 1 to ",
                          kLargestLengthFactor, "; 2 is usual."));
  }
  // Only powers of two can be the length of a text; exp2() has these exactly, so that every platform has the same
  // groups.
  std::vector<double> bounds;
  for (int i = 1; i <= 32 * factor; ++i) bounds.push_back(std::exp2(static_cast<double>(i) / factor));
  std::vector<std::uint8_t> groups;
  groups.reserve(lengths.size());
  for (const std::uint32_t length : lengths) {
    const auto group = std::upper_bound(bounds.begin(), bounds.end(), static_cast<double>(length));
    groups.push_back(static_cast<std::uint8_t>(group - bounds.begin()));
  }
  return groups;
}

}  // namespace libtrain::data
