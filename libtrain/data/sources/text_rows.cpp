#include <libtrain/data/sources/detail/text_rows.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/detail/json.hpp>
#include <libtrain/data/formats/parquet.hpp>
#include <libtrain/data/formats/text_table.hpp>
#include <libtrain/data/storage/detail/location.hpp>

namespace libtrain::data::detail {

namespace {

namespace ondemand = simdjson::ondemand;

struct NamedFormat {
  std::string_view end;
  TextFormat format;
};
constexpr std::array kTextFormats{
    NamedFormat{".csv", TextFormat::csv},          NamedFormat{".tsv", TextFormat::tsv},
    NamedFormat{".jsonl", TextFormat::json_lines}, NamedFormat{".ndjson", TextFormat::json_lines},
    NamedFormat{".json", TextFormat::json_lines},  NamedFormat{".parquet", TextFormat::parquet},
    NamedFormat{".txt", TextFormat::lines},
};

struct PairOfNames {
  std::string_view first;
  std::string_view second;
};

// Names of columns in GLUE's files, in their copies on Hugging Face, and in other data sets of pairs.
constexpr std::array kPairs{
    PairOfNames{"sentence1", "sentence2"},   PairOfNames{"question1", "question2"},
    PairOfNames{"premise", "hypothesis"},    PairOfNames{"question", "sentence"},
    PairOfNames{"#1 string", "#2 string"},   PairOfNames{"question", "passage"},
    PairOfNames{"text", "text_pair"},        PairOfNames{"text1", "text2"},
    PairOfNames{"sentence_a", "sentence_b"},
};
constexpr std::array<std::string_view, 9> kTexts{"text",    "sentence", "sentence1", "review", "content",
                                                 "premise", "question", "comment",   "tweet"};
constexpr std::array<std::string_view, 13> kLabels{"label",     "labels", "gold_label",   "class",   "category",
                                                   "target",    "score",  "is_duplicate", "quality", "similarity_score",
                                                   "sentiment", "stars",  "rating"};

struct ColumnNumbers {
  std::size_t text = 0;
  std::optional<std::size_t> second = {};
  std::optional<std::size_t> label = {};
};

/// The columns of one file.
class TextColumns {
 public:
  TextColumns(std::string file, std::vector<std::string> names) : file_(std::move(file)), names_(std::move(names)) {
    for (const auto& name : names_) plain_.push_back(lower_case(name));
  }

  /// Throws UsageError.
  ColumnNumbers choose(const LabelledTextsOptions& options) const {
    ColumnNumbers chosen;
    if (!options.text_column.empty()) {
      chosen.text = by_name(options.text_column);
      if (!options.second_column.empty()) chosen.second = by_name(options.second_column);
    } else {
      find_texts(options, chosen);
    }
    if (options.labels != TextLabels::none) {
      chosen.label = options.label_column.empty() ? find_label() : by_name(options.label_column);
    }
    return chosen;
  }

  const std::string& name(std::size_t number) const { return names_[number]; }

 private:
  std::size_t by_name(const std::string& name) const {
    const auto found = std::ranges::find(names_, name);
    if (found == names_.end()) {
      if (const auto number = parse_integer(name, 0, std::ssize(names_) - 1)) return static_cast<std::size_t>(*number);
      throw UsageError(text("File '", file_, "' has no column '", name, "'; it has: ", join(names_, ", "),
                            ". Give one of these, or its number from 0 on."));
    }
    if (std::find(found + 1, names_.end(), name) != names_.end()) {
      throw UsageError(text("File '", file_, "' has more than one column '", name, "'. Give its number, from 0 on."));
    }
    return static_cast<std::size_t>(found - names_.begin());
  }

  std::optional<std::size_t> usual(std::string_view name) const {
    const auto found = std::ranges::find(plain_, name);
    if (found == plain_.end()) return std::nullopt;
    if (std::find(found + 1, plain_.end(), name) != plain_.end()) {
      throw UsageError(text("File '", file_, "' has more than one column '", name, "'. Give its number, from 0 on."));
    }
    return static_cast<std::size_t>(found - plain_.begin());
  }

  void find_texts(const LabelledTextsOptions& options, ColumnNumbers& chosen) const {
    for (const auto& pair : kPairs) {
      const auto first = usual(pair.first);
      const auto second = usual(pair.second);
      if (!first || !second) continue;
      chosen.text = *first;
      chosen.second = options.second_column.empty() ? *second : by_name(options.second_column);
      return;
    }
    for (const auto name : kTexts) {
      const auto found = usual(name);
      if (!found) continue;
      chosen.text = *found;
      if (!options.second_column.empty()) chosen.second = by_name(options.second_column);
      return;
    }
    throw UsageError(text("File '", file_,
                          "' has no column with a usual name for texts, such as text or sentence; it "
                          "has: ",
                          join(names_, ", "), ". Name the column of the texts."));
  }

  std::size_t find_label() const {
    for (const auto name : kLabels) {
      if (const auto found = usual(name)) return *found;
    }
    throw UsageError(text("File '", file_, "' has no column with a usual name for labels, such as label; it has: ",
                          join(names_, ", "), ". Name the column of the labels."));
  }

  std::string file_;
  std::vector<std::string> names_;
  std::vector<std::string> plain_;  // in lower case
};

void read_csv_rows(const File& file, TextFormat format, const LabelledTextsOptions& options,
                   const TextRowVisitor& visitor) {
  CsvOptions csv{.header = options.header};
  if (format == TextFormat::tsv) csv = {.separator = '\t', .quote = std::nullopt, .header = options.header};
  std::optional<ColumnNumbers> columns;
  TextRow row;
  const auto begin = [&](std::vector<std::string> names) {
    columns = TextColumns{file.name(), std::move(names)}.choose(options);
    visitor.begin(columns->second.has_value());
  };
  for_each_csv_row(
      file, csv,
      [&](std::span<std::string> fields, std::uint64_t line) {
        if (!columns) {
          if (options.header == CsvHeader::first_row) return begin({fields.begin(), fields.end()});
          std::vector<std::string> numbers;
          for (std::size_t number = 0; number < fields.size(); ++number) numbers.push_back(std::to_string(number));
          begin(std::move(numbers));
        }
        row.place = line;
        row.text = fields[columns->text];
        if (columns->second) row.second_text = fields[*columns->second];
        if (columns->label) row.labels = {fields[*columns->label]};
        visitor.visit(row);
      },
      visitor.refuse);
}

void read_plain_lines(const File& file, const TextRowVisitor& visitor) {
  bool has_begun = false;
  TextRow row;
  for_each_line(file, [&](std::string_view line, std::uint64_t number) {
    if (line.find_first_not_of(" \t") == std::string_view::npos) return;
    if (!std::exchange(has_begun, true)) visitor.begin(false);
    row.place = number;
    row.text = line;
    visitor.visit(row);
  });
}

constexpr std::size_t kLinesForColumns = 1000;

/// Reads the JSON objects of one file.
class JsonTextRows {
 public:
  JsonTextRows(const File& file, const LabelledTextsOptions& options, const TextRowVisitor& visitor)
      : file_(file), options_(options), visitor_(visitor) {}

  void read() {
    for_each_line(file_, [this](std::string_view line, std::uint64_t number) {
      if (line.find_first_not_of(kJsonSpace) == std::string_view::npos) return;
      if (has_columns_) return read_line(line, number);
      first_.emplace_back(line, number);
      if (first_.size() == kLinesForColumns) read_first();
    });
    if (!has_columns_) read_first();
  }

 private:
  static ondemand::object object_of(ondemand::document& document, const simdjson::padded_string& json) {
    ondemand::object object;
    if (document.get_object().get(object) != simdjson::SUCCESS) throw JsonFault{json.data(), "an object"};
    return object;
  }

  // Chooses the columns among the keys of the first objects, and reads these. An object may lack a key: that is then
  // the fault of its row.
  void read_first() {
    std::vector<std::string> names;
    for (const auto& [line, number] : first_) {
      const simdjson::padded_string json(line);
      try {
        parse_json(json, [&](ondemand::document& document) {
          auto object = object_of(document, json);
          for_each_json_field(object, [&](std::string_view key, ondemand::value& value) {
            if (std::ranges::find(names, key) == names.end()) names.emplace_back(key);
            static_cast<void>(value);
          });
        });
      } catch (const JsonFault&) {
        continue;  // told when it is read
      }
    }
    if (!names.empty()) choose_columns(std::move(names));
    for (const auto& [line, number] : std::exchange(first_, {})) read_line(line, number);
  }

  void read_line(std::string_view line, std::uint64_t number) {
    row_.place = number;
    const simdjson::padded_string json(line);
    try {
      parse_json(json, [this, &json](ondemand::document& document) { take(document, json); });
    } catch (const JsonFault& fault) {
      const std::string_view whole = json;
      const auto position = std::min(static_cast<std::size_t>(fault.at - whole.data()), whole.size());
      return visitor_.refuse(text(text_place(file_.name(), true, number), ": expected ", fault.expected, ", found ",
                                  json_excerpt(whole.substr(position), "the end of the line"), "."));
    }
    visitor_.visit(row_);
  }

  void choose_columns(std::vector<std::string> names) {
    const TextColumns columns(file_.name(), std::move(names));
    const ColumnNumbers chosen = columns.choose(options_);
    text_ = columns.name(chosen.text);
    if (chosen.second) second_ = columns.name(*chosen.second);
    if (chosen.label) label_ = columns.name(*chosen.label);
    has_columns_ = true;
    visitor_.begin(second_.has_value());
  }

  void take(ondemand::document& document, const simdjson::padded_string& json) {
    bool has_text = false;
    bool has_second = !second_;
    bool has_label = !label_;
    auto object = object_of(document, json);
    for_each_json_field(object, [&](std::string_view key, ondemand::value& value) {
      if (key == text_) {
        row_.text = json_string(value, text_);
        has_text = true;
      } else if (second_ && key == *second_) {
        row_.second_text = json_string(value, *second_);
        has_second = true;
      } else if (label_ && key == *label_) {
        take_label(value);
        has_label = true;
      }
    });
    const std::string* missing = !has_text ? &text_ : !has_second ? &*second_ : !has_label ? &*label_ : nullptr;
    if (missing != nullptr) throw JsonFault{json.data(), text("an object with the key '", *missing, "'")};
  }

  void take_label(ondemand::value& value) {
    row_.labels.clear();
    row_.has_list = *json_begin(value) == '[';
    if (!row_.has_list) return row_.labels.push_back(json_text(value, *label_));
    for_each_json_element(json_array(value, *label_), *label_,
                          [&](ondemand::value& each) { row_.labels.push_back(json_text(each, *label_)); });
  }

  const File& file_;
  const LabelledTextsOptions& options_;
  const TextRowVisitor& visitor_;
  bool has_columns_ = false;
  std::vector<std::pair<std::string, std::uint64_t>> first_;  // lines before the columns are known
  std::string text_;
  std::optional<std::string> second_;
  std::optional<std::string> label_;
  TextRow row_;
};

std::string shortest(double number) {
  std::array<char, 32> digits{};
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr};
}

/// Reads the rows of a Parquet file, a row group at a time.
class ParquetTextRows {
 public:
  ParquetTextRows(std::unique_ptr<const File> file, const LabelledTextsOptions& options, const TextRowVisitor& visitor)
      : visitor_(visitor), file_(std::move(file)) {
    std::vector<std::string> names;
    for (const auto& column : file_.columns()) names.push_back(column.name);
    const ColumnNumbers chosen = TextColumns(file_.name(), std::move(names)).choose(options);
    add(chosen.text);
    if (chosen.second) add(*chosen.second);
    has_second_ = chosen.second.has_value();
    for (const std::size_t column : columns_) require_texts(file_.columns()[column]);
    if (chosen.label) add(*chosen.label);
    has_label_ = chosen.label.has_value();
    for (const std::size_t column : columns_) {
      const auto is_namesake = [&](const ParquetColumn& other) { return other.name == file_.columns()[column].name; };
      if (std::ranges::count_if(file_.columns(), is_namesake) == 1) continue;
      throw UsageError(text("File '", file_.name(), "' has more than one column '", file_.columns()[column].name,
                            "'. Write it with different names."));
    }
  }

  void read() {
    if (file_.rows() > 0) visitor_.begin(has_second_);
    std::vector<std::string> names;
    for (const std::size_t column : columns_) names.push_back(file_.columns()[column].name);
    for (std::size_t group = 0; group < file_.row_groups(); ++group) {
      const ParquetRows rows = file_.read_row_group(group, names);
      for (std::uint64_t number = 0; number < rows.size(); ++number, ++row_.place) {
        if (take(rows, number)) visitor_.visit(row_);
      }
    }
  }

 private:
  void add(std::size_t column) { columns_.push_back(column); }

  void require_texts(const ParquetColumn& column) const {
    if (column.type == ParquetType::bytes && !column.list) return;
    throw UsageError(text("File '", file_.name(), "': expected texts in the column '", column.name,
                          "', found the type ", column.file_type, ". Name another column."));
  }

  bool take(const ParquetRows& rows, std::uint64_t number) {
    for (std::size_t column = 0; column < columns_.size(); ++column) {
      if (!rows.is_null(number, column)) continue;
      visitor_.refuse(text(text_place(file_.name(), false, row_.place), ": expected a value in the column '",
                           file_.columns()[columns_[column]].name, "', found a null."));
      return false;
    }
    row_.text = rows.bytes(number, 0);
    if (has_second_) row_.second_text = rows.bytes(number, 1);
    if (has_label_) take_label(rows, number);
    return true;
  }

  void take_label(const ParquetRows& rows, std::uint64_t number) {
    const std::size_t column = columns_.size() - 1;
    const ParquetColumn& of_file = file_.columns()[columns_[column]];
    row_.labels.clear();
    row_.has_list = of_file.list;
    const auto add_all = [&](const auto& values, const auto& word) {
      for (const auto& value : values) row_.labels.push_back(word(value));
    };
    const auto of_integer = [](std::int64_t value) { return std::to_string(value); };
    const auto of_bytes = [](std::string_view value) { return std::string(value); };
    if (of_file.type == ParquetType::integer) {
      of_file.list ? add_all(rows.integer_list(number, column), of_integer)
                   : add_all(std::array{rows.integer(number, column)}, of_integer);
    } else if (of_file.type == ParquetType::real) {
      of_file.list ? add_all(rows.real_list(number, column), shortest)
                   : add_all(std::array{rows.real(number, column)}, shortest);
    } else {
      of_file.list ? add_all(rows.bytes_list(number, column), of_bytes)
                   : add_all(std::array{rows.bytes(number, column)}, of_bytes);
    }
  }

  const TextRowVisitor& visitor_;
  ParquetFile file_;
  std::vector<std::size_t> columns_;  // those to read: of the texts, then of the labels
  bool has_second_ = false;
  bool has_label_ = false;
  TextRow row_;
};

std::optional<TextFormat> format_by_name(std::string_view name) {
  const std::string plain = lower_case(name);
  for (const auto& each : kTextFormats) {
    if (plain.ends_with(each.end)) return each.format;
  }
  return std::nullopt;
}

}  // namespace

bool has_text_format(std::string_view name) {
  return format_by_name(name).has_value();
}

TextFormat text_format_of(std::string_view name, TextFormat format) {
  if (format != TextFormat::by_name) return format;
  if (const auto found = format_by_name(name)) return *found;
  std::vector<std::string_view> ends;
  for (const auto& each : kTextFormats) ends.push_back(each.end);
  throw UsageError(text("The name of the file '", name, "' does not say its format: none of ", join(ends, ", "),
                        ". Give the format."));
}

std::string text_place(std::string_view file, bool has_lines, std::uint64_t place) {
  return text("file '", file, "', ", has_lines ? "line " : "row ", place);
}

void read_text_rows(std::unique_ptr<const File> file, TextFormat format, const LabelledTextsOptions& options,
                    const TextRowVisitor& visitor) {
  switch (format) {
    case TextFormat::parquet:
      return ParquetTextRows(std::move(file), options, visitor).read();
    case TextFormat::json_lines:
      return JsonTextRows(*file, options, visitor).read();
    case TextFormat::lines:
      return read_plain_lines(*file, visitor);
    default:
      return read_csv_rows(*file, format, options, visitor);
  }
}

}  // namespace libtrain::data::detail
