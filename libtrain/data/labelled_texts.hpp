#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/data/dataset_identity.hpp>
#include <libtrain/data/formats/csv.hpp>
#include <libtrain/data/sample_origin.hpp>
#include <libtrain/data/storage/file.hpp>
#include <libtrain/data/storage/storage_options.hpp>

namespace libtrain::data {

enum class TextFormat {
  by_name,     ///< by the end of the file's name: .csv, .tsv, .jsonl, .ndjson or .json, .parquet, .txt
  csv,         ///< RFC 4180: see CsvFile
  tsv,         ///< fields between tabs, in which a quote is an ordinary character, as in the files of GLUE
  json_lines,  ///< one JSON object per line
  parquet,     ///< needs Apache Arrow
  lines,       ///< each line is a text, without a label; empty lines are none
};

enum class TextLabels {
  none,             ///< no column of labels is read
  classes,          ///< one class for each text
  several_classes,  ///< any number of classes for each text: a list, or one field with separators
  numbers,          ///< a real number for each text
};

/// What happens to a row that cannot be used: fields that the format does not allow, or too few of them, an empty text
/// (or of white space alone), text that is not UTF-8, a label that is missing or not among the given classes, an empty
/// file.
enum class BadTexts {
  refuse,     ///< an error that names the file and the line
  leave_out,  ///< it is left out and counted, see first_left_out()
};

struct LabelledTextsOptions {
  TextFormat format = TextFormat::by_name;
  CsvHeader header = CsvHeader::first_row;  ///< for csv and tsv

  /// A column is named by its name or, if none has it, by its number from 0 on. Without a name for the texts they are
  /// found by usual names: those of pairs (sentence1 and sentence2, question1 and question2, premise and hypothesis,
  /// question and sentence, text and text_pair, ...), otherwise text, sentence, review, content, ... With a name for
  /// the texts there are pairs only if `second_column` has one, too.
  std::string text_column = {};
  std::string second_column = {};  ///< the second text of a pair
  std::string label_column = {};   ///< "": label, labels, gold_label, class, category, target, score, ...

  TextLabels labels = TextLabels::classes;
  char label_separator = ',';  ///< for several_classes: between classes in one field; spaces around them do not count

  /// The names of the classes by number, such as those of the training set for a held-out one. Empty: those in the
  /// files, in the order of their values if all are integers (0 to n - 1 are then the numbers of the classes
  /// themselves), otherwise in the order of their bytes.
  std::vector<std::string> classes = {};

  BadTexts bad_texts = BadTexts::refuse;
};

namespace detail {

class LabelledTextsReader;

}  // namespace detail

/// Texts or pairs of texts in memory, with labels: the bytes of all texts in one buffer, and about 16 bytes for each
/// row besides. Texts are not empty, and UTF-8. Immutable: any thread may call it.
class LabelledTexts {
 public:
  /// Reads the files, in this order, each in one pass. Throws UsageError without files, for a name whose format is not
  /// known, for a column that does not exist (the message has the names of those that do) or of which there are two,
  /// for files of which only some have pairs, and for classes that are given twice; EnvironmentError, which names file
  /// and line, for rows that BadTexts describes, for a quote that is not closed, and if no text is left; and what
  /// File::read_at and ParquetFile throw.
  explicit LabelledTexts(std::vector<std::unique_ptr<const File>> files, const LabelledTextsOptions& options = {});

  std::uint64_t size() const { return lines_.size(); }
  bool has_pairs() const { return has_pairs_; }

  /// The text of a row, or the first of a pair, and the second one ("" without pairs). This and the functions below
  /// throw UsageError for a row that is not below size(), and for labels of another kind.
  std::string_view text(std::uint64_t row) const;
  std::string_view second_text(std::uint64_t row) const;

  TextLabels labels() const { return kind_; }

  /// For TextLabels::classes: the number of the row's class.
  std::int64_t label(std::uint64_t row) const;

  /// The numbers of the row's classes: one, or any number of different ones in ascending order with several_classes.
  std::span<const std::uint32_t> classes_of(std::uint64_t row) const;

  /// For TextLabels::numbers.
  double number(std::uint64_t row) const;

  /// The names of the classes by number. Empty with `none` and `numbers`.
  const std::vector<std::string>& classes() const { return classes_; }

  /// The file and the line in which the row begins, such as "train.csv, line 17": of a Parquet file the number of the
  /// row, from 0 on.
  SampleOrigin origin(std::uint64_t row) const;

  /// The number of rows that were left out.
  std::uint64_t left_out() const { return left_out_; }

  /// What is wrong with the first of them, with file and line; empty if there is none.
  const std::string& first_left_out() const { return first_left_out_; }

  /// The number of rows and the names of the classes, with a checksum of texts and labels.
  DatasetIdentity identity() const;

 private:
  friend class detail::LabelledTextsReader;
  friend LabelledTexts read_labelled_texts(const std::vector<std::string>& locations,
                                           const LabelledTextsOptions& options, const StorageOptions& storage);

  struct FileRows {
    std::string name = {};
    bool has_lines = true;  // otherwise rows
    std::uint64_t end = 0;  // the number of rows of this file and those before it
  };

  using OpenFile = std::function<std::unique_ptr<const File>(std::size_t number)>;
  LabelledTexts(std::size_t files, const OpenFile& open, const LabelledTextsOptions& options);
  std::string_view text_at(std::uint64_t number) const;

  std::string bytes_;
  std::vector<std::uint64_t> ends_;  // of each text in bytes_; with pairs two for each row
  std::vector<std::uint32_t> lines_;
  std::vector<FileRows> files_;
  bool has_pairs_ = false;
  TextLabels kind_ = TextLabels::none;
  std::vector<std::string> classes_;
  std::vector<std::uint32_t> labels_;
  std::vector<std::uint64_t> label_ends_;  // for several_classes: of each row's labels in labels_
  std::vector<double> numbers_;
  std::uint64_t left_out_ = 0;
  std::string first_left_out_;
};

/// The texts at `locations`, in this order: files in local paths or object stores (see open_storage()), or folders, of
/// which all files with a name that TextFormat::by_name knows are read, at any depth, in the order of their paths. A
/// location is a folder if it ends with '/' or is a local one. Throws as LabelledTexts and open_storage() do, and
/// EnvironmentError for a folder without such files, with files of several splits, such as train.csv and test.csv, and
/// with some of the files numbered "-00000-of-00003".
LabelledTexts read_labelled_texts(const std::vector<std::string>& locations, const LabelledTextsOptions& options = {},
                                  const StorageOptions& storage = {});

}  // namespace libtrain::data
