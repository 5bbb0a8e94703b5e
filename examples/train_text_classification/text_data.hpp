#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <libtrain/libtrain.hpp>
#include <libtrain/models/roberta/roberta.hpp>

/// The words of an option such as "a, b, c", without the spaces around them; none if it is empty.
inline std::vector<std::string> words_of(const libtrain::Context& context, const std::string& name) {
  std::vector<std::string> words;
  std::istringstream list(context.option(name));
  for (std::string word; std::getline(list, word, ',');) {
    const auto begin = word.find_first_not_of(' ');
    if (begin == std::string::npos) {
      throw libtrain::UsageError("--" + name + " is '" + list.str() + "', which has an empty name. Write it as a,b,c.");
    }
    words.push_back(word.substr(begin, word.find_last_not_of(' ') - begin + 1));
  }
  return words;
}

inline libtrain::models::RobertaTask task_of(const libtrain::Context& context) {
  using libtrain::models::RobertaTask;
  const auto word = context.choice("task", {"single-label", "multi-label", "regression"});
  if (word == "multi-label") return RobertaTask::multi_label;
  return word == "regression" ? RobertaTask::regression : RobertaTask::single_label;
}

inline bool is_masked_lm(const libtrain::Context& context) {
  return context.choice("objective", {"classification", "mlm"}) == "mlm";
}

/// The texts of the files that option `split` names, below --data. `classes` are those that labels may be; empty: those
/// in the files.
inline libtrain::data::LabelledTexts read_split(const libtrain::Context& context,
                                                const std::shared_ptr<const libtrain::data::Storage>& storage,
                                                const char* split, const std::vector<std::string>& classes) {
  namespace ltd = libtrain::data;
  using libtrain::models::RobertaTask;
  const auto task = task_of(context);
  ltd::LabelledTextsOptions options{
      .header = context.flag("no-header") ? ltd::CsvHeader::none : ltd::CsvHeader::first_row,
      .text_column = context.option("text-column"),
      .second_column = context.option("second-column"),
      .label_column = context.option("label-column"),
      .labels = task == RobertaTask::regression    ? ltd::TextLabels::numbers
                : task == RobertaTask::multi_label ? ltd::TextLabels::several_classes
                                                   : ltd::TextLabels::classes,
      .classes = classes,
      .bad_texts = context.flag("skip-malformed") ? ltd::BadTexts::leave_out : ltd::BadTexts::refuse};
  if (is_masked_lm(context)) options.labels = ltd::TextLabels::none;
  std::vector<std::unique_ptr<const ltd::File>> files;
  for (const auto& name : words_of(context, split)) files.push_back(storage->open(name));
  return ltd::LabelledTexts(std::move(files), options);
}

/// The texts as tokens, special ones included. What happens to a text of more than `max_tokens` is for --long-texts to
/// say; rank 0 says how many there are.
inline libtrain::data::TokenizedTexts tokenize(libtrain::Context& context, const char* split,
                                               libtrain::data::LabelledTexts texts,
                                               const libtrain::Tokenizer& tokenizer, std::int64_t max_tokens) {
  namespace ltd = libtrain::data;
  const auto long_texts = context.choice("long-texts", {"cut", "refuse", "leave-out"});
  libtrain::EncodeOptions encoding;
  // Where a tokenizer.json asks for less, it is not followed.
  encoding.max_tokens = static_cast<std::size_t>(long_texts == "cut" ? max_tokens : std::int64_t{1} << 30);
  std::atomic<std::uint64_t> cut = 0;
  const auto encode = [&](std::string_view text, std::optional<std::string_view> second) {
    auto encoded = second ? tokenizer.encode_pair(text, *second, encoding) : tokenizer.encode(text, encoding);
    if (encoded.truncated) ++cut;
    return std::move(encoded.ids);
  };
  const auto rows = texts.size();
  const auto malformed = texts.left_out();
  const auto first_malformed = texts.first_left_out();
  ltd::TokenizedTexts tokenized(
      std::move(texts), encode,
      {.maximum_tokens = static_cast<std::uint64_t>(max_tokens),
       .bad_texts = long_texts == "leave-out" ? ltd::BadTexts::leave_out : ltd::BadTexts::refuse,
       .threads = static_cast<int>(context.integer("workers", 0, 1024)) + 1});
  auto& progress = context.progress();
  progress.print(libtrain::text("--", split, ": ", rows, tokenized.texts().has_pairs() ? " pairs of texts" : " texts"));
  if (malformed > 0) {
    progress.print(
        libtrain::text("--", split, ": ", malformed, " malformed rows are left out. The first: ", first_malformed));
  }
  if (cut > 0) {
    progress.print(
        libtrain::text("--", split, ": ", cut.load(), " texts of more than ", max_tokens, " tokens are cut"));
  }
  if (tokenized.left_out() > 0) {
    progress.print(libtrain::text("--", split, ": ", tokenized.left_out(), " texts of more than ", max_tokens,
                                  " tokens are left out. The first: ", tokenized.first_left_out()));
  }
  return tokenized;
}
