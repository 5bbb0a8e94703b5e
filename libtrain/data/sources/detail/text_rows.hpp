#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/data/labelled_texts.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::data::detail {

/// A row of a file of texts, whatever its format. Nothing in it is checked.
struct TextRow {
  std::string text = {};
  std::string second_text = {};
  std::vector<std::string> labels = {};  ///< one, or the elements of a list; empty if labels are not read
  bool has_list = false;                 ///< the label is a list
  std::uint64_t place = 0;               ///< its line from 1 on, or its row from 0 on in a Parquet file
};

struct TextRowVisitor {
  /// Called once, before any row: whether the file has pairs of texts. Not called for an empty file.
  std::function<void(bool has_pairs)> begin;
  std::function<void(TextRow& row)> visit;
  /// Called with a message, which names file and place, for a row that the format does not allow: throws, or returns to
  /// leave the row out.
  std::function<void(const std::string& message)> refuse;
};

/// The format of a file. Throws UsageError if its name does not say.
TextFormat text_format_of(std::string_view name, TextFormat format);

/// Whether the end of the name says the format.
bool has_text_format(std::string_view name);

/// "file 'reviews.csv', line 17"
std::string text_place(std::string_view file, bool has_lines, std::uint64_t place);

/// Reads the rows of a file once. `format` is not TextFormat::by_name. Throws as LabelledTexts does.
void read_text_rows(std::unique_ptr<const File> file, TextFormat format, const LabelledTextsOptions& options,
                    const TextRowVisitor& visitor);

}  // namespace libtrain::data::detail
