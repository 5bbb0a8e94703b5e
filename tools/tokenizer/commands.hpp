#pragma once

#include <string>
#include <vector>

#include <libtrain/text/tokenizer.hpp>
#include <libtrain/text/train_tokenizer.hpp>

namespace libtrain::tokenizer_tool {

enum class Style { text, json };

struct EncodeCommand {
  std::string tokenizer = {};
  std::vector<std::string> files = {};  ///< none: standard input
  EncodeOptions options = {};
  int threads = 1;
  Style style = Style::text;
};

struct DecodeCommand {
  std::string tokenizer = {};
  std::vector<std::string> files = {};
  DecodeOptions options = {};
  Style style = Style::text;
};

struct TrainCommand {
  std::string output = {};
  std::vector<std::string> files = {};
  TrainTokenizerOptions options = {};
  bool replace = false;
  Style style = Style::text;
};

/// The commands of libtrain-tokenizer: each prints a line for a line of its files, or, train, one about the vocabulary.
void encode(const EncodeCommand& command);
void decode(const DecodeCommand& command);
void train(const TrainCommand& command);

}  // namespace libtrain::tokenizer_tool
