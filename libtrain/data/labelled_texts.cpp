#include <libtrain/data/labelled_texts.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>
#include <unordered_map>
#include <utility>

#include <simdjson.h>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/detail/json.hpp>
#include <libtrain/data/sources/detail/text_rows.hpp>
#include <libtrain/data/sources/shard_files.hpp>
#include <libtrain/data/storage/content_hash.hpp>
#include <libtrain/data/storage/detail/location.hpp>
#include <libtrain/data/storage/open_storage.hpp>

namespace libtrain::data {

namespace {

constexpr std::size_t kShownClasses = 10;
constexpr std::uint64_t kMostReserved = std::uint64_t{1} << 30;  // the size of a file may be wrong

// An integer of a label, for the order of classes; std::nullopt for any other name.
std::optional<long long> integer_of(const std::string& name) {
  return parse_integer(name, std::numeric_limits<long long>::min(), std::numeric_limits<long long>::max());
}

// The names in the order of their values if all are integers, otherwise in that of their bytes.
std::vector<std::uint32_t> sorted_classes(const std::vector<std::string>& names) {
  std::vector<std::uint32_t> order(names.size());
  std::iota(order.begin(), order.end(), std::uint32_t{0});
  if (std::ranges::all_of(names, [](const auto& name) { return integer_of(name).has_value(); })) {
    // By name as well: 1 and 01 are different classes of the same value.
    std::ranges::sort(order, {}, [&](std::uint32_t number) {
      return std::pair<long long, const std::string&>(*integer_of(names[number]), names[number]);
    });
  } else {
    std::ranges::sort(order, {}, [&](std::uint32_t number) -> const std::string& { return names[number]; });
  }
  return order;
}

std::string shown(const std::vector<std::string>& classes) {
  const std::vector<std::string> first(classes.begin(),
                                       classes.begin() + std::min(std::ssize(classes), std::ptrdiff_t{kShownClasses}));
  return text(join(first, ", "), classes.size() > kShownClasses ? text(", ... (", classes.size(), " in all)") : "");
}

std::string_view without_spaces(std::string_view word) {
  constexpr std::string_view kSpaces = " \t\r\n";
  word.remove_prefix(std::min(word.find_first_not_of(kSpaces), word.size()));
  return word.substr(0, word.find_last_not_of(kSpaces) + 1);
}

}  // namespace

/// Collects rows in a LabelledTexts.
class detail::LabelledTextsReader {
 public:
  LabelledTextsReader(LabelledTexts& texts, const LabelledTextsOptions& options) : texts_(texts), options_(options) {
    texts_.kind_ = options.labels;
    for (const auto& name : options.classes) {
      if (!numbers_.emplace(name, static_cast<std::uint32_t>(names_.size())).second) {
        throw UsageError(text("The class '", name, "' is given twice. Give each name once."));
      }
      names_.push_back(name);
    }
  }

  void read(std::unique_ptr<const File> file) {
    const std::string name = require_file(file.get(), "file of texts").name();
    const TextFormat format = text_format_of(name, options_.format);
    if (format == TextFormat::lines && options_.labels != TextLabels::none) {
      throw UsageError(text("File '", name,
                            "' has lines of text without labels. Read no labels, or name a file of a format with "
                            "columns."));
    }
    file_ = {.name = name, .has_lines = format != TextFormat::parquet};
    // The texts of most formats are less. Pages that are not written take no memory.
    texts_.bytes_.reserve(texts_.bytes_.size() + std::min(file->size(), kMostReserved));
    const std::uint64_t before = texts_.size();
    const std::uint64_t left_out_before = texts_.left_out_;
    read_text_rows(std::move(file), format, options_,
                   {.begin = [this](bool has_pairs) { begin(has_pairs); },
                    .visit = [this](const TextRow& row) { add(row); },
                    .refuse = [this](const std::string& message) { refuse(message); }});
    if (texts_.size() == before && texts_.left_out_ == left_out_before) {
      refuse(text("file '", name, "': expected texts, found none."));
    }
    file_.end = texts_.size();
    texts_.files_.push_back(file_);
  }

  void finish() {
    if (texts_.size() == 0) {
      throw EnvironmentError(text("File '", file_.name, "': expected texts, found none",
                                  texts_.left_out_ > 0 ? " that can be used" : "", ". Check the path and the format."));
    }
    const bool has_classes = options_.labels == TextLabels::classes || options_.labels == TextLabels::several_classes;
    if (options_.classes.empty() && has_classes) sort_classes();
    if (has_classes) texts_.classes_ = std::move(names_);
  }

 private:
  void begin(bool has_pairs) {
    if (!std::exchange(has_begun_, true)) texts_.has_pairs_ = has_pairs;
    if (texts_.has_pairs_ != has_pairs) {
      throw UsageError(text("File '", file_.name, "' has ", has_pairs ? "pairs of texts" : "single texts",
                            ", but the files before it have not. Name the columns to read."));
    }
  }

  void refuse(const std::string& message) {
    if (options_.bad_texts == BadTexts::refuse) {
      throw EnvironmentError(text(message, " Correct the file, or leave such rows out."));
    }
    if (texts_.left_out_++ == 0) texts_.first_left_out_ = message;
  }

  void refuse(const TextRow& row, const std::string& fault) {
    refuse(text(text_place(file_.name, file_.has_lines, row.place), ": expected ", fault, "."));
  }

  bool is_usable(const TextRow& row, const std::string& value) {
    if (!simdjson::validate_utf8(value)) {
      refuse(row, text("UTF-8, found another byte at position ", find_invalid_utf8(value), " of the text"));
      return false;
    }
    if (!without_spaces(value).empty()) return true;
    refuse(row, "a text, found none");
    return false;
  }

  void add(const TextRow& row) {
    if (row.place > std::numeric_limits<std::uint32_t>::max()) {
      throw EnvironmentError(text("File '", file_.name, "' has more than 2^32 rows. Divide it."));
    }
    if (!is_usable(row, row.text) || (texts_.has_pairs_ && !is_usable(row, row.second_text))) return;
    if (!add_label(row)) return;
    texts_.bytes_ += row.text;
    texts_.ends_.push_back(texts_.bytes_.size());
    if (texts_.has_pairs_) {
      texts_.bytes_ += row.second_text;
      texts_.ends_.push_back(texts_.bytes_.size());
    }
    texts_.lines_.push_back(static_cast<std::uint32_t>(row.place));
  }

  bool add_label(const TextRow& row) {
    switch (options_.labels) {
      case TextLabels::none:
        return true;
      case TextLabels::numbers:
        return add_number(row);
      case TextLabels::several_classes:
        return add_classes(row);
      case TextLabels::classes:
        break;
    }
    if (row.has_list) {
      refuse(row, "one label, found a list");
      return false;
    }
    if (!is_class(row, row.labels.front())) return false;
    texts_.labels_.push_back(number_of(row.labels.front()));
    return true;
  }

  bool add_number(const TextRow& row) {
    const auto number = row.has_list ? std::nullopt
                                     : libtrain::detail::parse_decimal(without_spaces(row.labels.front()),
                                                                       std::numeric_limits<double>::lowest(),
                                                                       std::numeric_limits<double>::max());
    if (number) {
      texts_.numbers_.push_back(*number);
    } else {
      refuse(row, text("a number as the label, found ", row.has_list ? "a list" : "'" + row.labels.front() + "'"));
    }
    return number.has_value();
  }

  bool add_classes(const TextRow& row) {
    names_of_row_.clear();
    if (row.has_list) {
      names_of_row_.assign(row.labels.begin(), row.labels.end());
    } else {
      std::string_view rest = without_spaces(row.labels.front());
      const bool is_in_brackets = rest.starts_with('[') && rest.find(']') == rest.size() - 1;
      while (!rest.empty()) {
        const std::size_t length = std::min(rest.find(options_.label_separator), rest.size());
        names_of_row_.push_back(rest.substr(0, length));
        rest.remove_prefix(std::min(length + 1, rest.size()));
      }
      const auto is_known = [&](std::string_view name) { return numbers_.contains(std::string(without_spaces(name))); };
      if (is_in_brackets && !std::ranges::all_of(names_of_row_, is_known)) {
        refuse(row, text("labels with '", options_.label_separator, "' between them and no brackets around, found '",
                         row.labels.front(), "'"));
        return false;
      }
    }
    // All of them first: a row that is left out must leave no class behind.
    if (!std::ranges::all_of(names_of_row_, [&](std::string_view name) { return is_class(row, name); })) return false;
    found_.clear();
    for (const std::string_view name : names_of_row_) found_.push_back(number_of(name));
    std::ranges::sort(found_);
    texts_.labels_.insert(texts_.labels_.end(), found_.begin(), std::unique(found_.begin(), found_.end()));
    texts_.label_ends_.push_back(texts_.labels_.size());
    return true;
  }

  // Whether a label is the name of a class; refuses the row if not.
  bool is_class(const TextRow& row, std::string_view label) {
    const std::string name(without_spaces(label));
    if (numbers_.contains(name)) return true;
    if (name.empty()) {
      refuse(row, "a label, found none");
    } else if (!options_.classes.empty()) {
      refuse(row, text("one of the labels ", shown(options_.classes), ", found '", name, "'"));
    } else if (!simdjson::validate_utf8(name)) {
      refuse(row, "UTF-8 as the label, found other bytes");
    } else {
      return true;
    }
    return false;
  }

  // The number of such a class, which may be new.
  std::uint32_t number_of(std::string_view label) {
    std::string name(without_spaces(label));
    if (const auto known = numbers_.find(name); known != numbers_.end()) return known->second;
    const auto number = static_cast<std::uint32_t>(names_.size());
    names_.push_back(name);
    numbers_.emplace(std::move(name), number);
    return number;
  }

  void sort_classes() {
    const std::vector<std::uint32_t> order = sorted_classes(names_);
    std::vector<std::uint32_t> renumbered(order.size());
    std::vector<std::string> sorted;
    for (const std::uint32_t number : order) {
      renumbered[number] = static_cast<std::uint32_t>(sorted.size());
      sorted.push_back(std::move(names_[number]));
    }
    names_ = std::move(sorted);
    for (auto& label : texts_.labels_) label = renumbered[label];
    std::uint64_t begin = 0;
    for (const std::uint64_t end : texts_.label_ends_) {
      std::sort(texts_.labels_.begin() + static_cast<std::ptrdiff_t>(begin),
                texts_.labels_.begin() + static_cast<std::ptrdiff_t>(end));
      begin = end;
    }
  }

  LabelledTexts& texts_;
  const LabelledTextsOptions& options_;
  LabelledTexts::FileRows file_;
  bool has_begun_ = false;
  std::vector<std::string> names_;  // of the classes
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::vector<std::string_view> names_of_row_;
  std::vector<std::uint32_t> found_;
};

LabelledTexts::LabelledTexts(std::vector<std::unique_ptr<const File>> files, const LabelledTextsOptions& options)
    : LabelledTexts(files.size(), [&](std::size_t number) { return std::move(files[number]); }, options) {}

LabelledTexts::LabelledTexts(std::size_t files, const OpenFile& open, const LabelledTextsOptions& options) {
  if (files == 0) throw UsageError("There are no files of texts to read. Give at least one.");
  detail::LabelledTextsReader reader(*this, options);
  for (std::size_t number = 0; number < files; ++number) reader.read(open(number));
  reader.finish();
}

std::string_view LabelledTexts::text(std::uint64_t row) const {
  return text_at(has_pairs_ ? 2 * row : row);
}

std::string_view LabelledTexts::second_text(std::uint64_t row) const {
  return has_pairs_ ? text_at(2 * row + 1) : text_at(row).substr(0, 0);
}

std::string_view LabelledTexts::text_at(std::uint64_t number) const {
  if (number >= ends_.size()) {
    throw UsageError(libtrain::text("A text past the end was requested: there are ", size(), " rows."));
  }
  const std::uint64_t begin = number == 0 ? 0 : ends_[number - 1];
  return std::string_view(bytes_).substr(begin, ends_[number] - begin);
}

std::int64_t LabelledTexts::label(std::uint64_t row) const {
  if (kind_ != TextLabels::several_classes) return classes_of(row).front();
  throw UsageError("label() was called for texts that have several classes each. Call classes_of().");
}

std::span<const std::uint32_t> LabelledTexts::classes_of(std::uint64_t row) const {
  const bool has_classes = kind_ == TextLabels::classes || kind_ == TextLabels::several_classes;
  if (row >= size() || !has_classes) {
    throw UsageError(libtrain::text("The class of row ", row, " was requested: there are ", size(), " rows ",
                                    has_classes ? "with classes." : "without classes."));
  }
  if (kind_ == TextLabels::classes) return std::span(labels_).subspan(row, 1);
  const std::uint64_t begin = row == 0 ? 0 : label_ends_[row - 1];
  return std::span(labels_).subspan(begin, label_ends_[row] - begin);
}

double LabelledTexts::number(std::uint64_t row) const {
  if (row < numbers_.size()) return numbers_[row];
  throw UsageError(libtrain::text("The number of row ", row, " was requested: there are ", numbers_.size(), "."));
}

SampleOrigin LabelledTexts::origin(std::uint64_t row) const {
  const auto file = std::ranges::find_if(files_, [&](const FileRows& each) { return row < each.end; });
  if (file == files_.end()) {
    throw UsageError(libtrain::text("Row ", row, " was requested, but there are ", size(), " rows."));
  }
  return {.path = libtrain::text(file->name, ", ", file->has_lines ? "line " : "row ", lines_[row])};
}

DatasetIdentity LabelledTexts::identity() const {
  ContentHasher hasher;
  const auto add = [&](const auto& values) { hasher.update(std::as_bytes(std::span(values))); };
  hasher.update(bytes_);
  add(ends_);
  add(labels_);
  add(label_ends_);
  add(numbers_);
  for (const auto& name : classes_) hasher.update(libtrain::text(name.size(), " ", name, "\n"));
  DatasetIdentity lines{libtrain::text(size(), has_pairs_ ? " pairs of texts" : " texts")};
  if (!classes_.empty()) lines.push_back(libtrain::text("classes ", shown(classes_)));
  lines.push_back(libtrain::text("texts and labels with checksum ", to_string(hasher.digest())));
  return lines;
}

LabelledTexts read_labelled_texts(const std::vector<std::string>& locations, const LabelledTextsOptions& options,
                                  const StorageOptions& storage) {
  struct Place {
    std::shared_ptr<const Storage> folder;  // null for a single file
    std::string path;
  };
  std::vector<Place> places;
  for (const auto& location : locations) {
    const auto parsed = detail::parse_location(location);
    const bool is_local = parsed.kind == detail::StorageKind::local;
    if (is_local ? !std::filesystem::is_directory(parsed.path) : !location.ends_with('/')) {
      places.push_back({.folder = nullptr, .path = location});
      continue;
    }
    const auto folder = open_storage(location, storage);
    auto files = folder->list("");
    std::erase_if(
        files, [](const FileInfo& info) { return info.kind != FileKind::file || !detail::has_text_format(info.path); });
    if (files.empty()) {
      throw EnvironmentError(text("Folder '", folder->name(),
                                  "': expected files of texts, found none whose names end "
                                  "with .csv, .tsv, .jsonl, .parquet and so on. Check the path."));
    }
    const std::vector<std::string_view> names = detail::names_of(files, "");
    detail::require_one_split(folder->name(), names, "Name the files to read instead of the folder.");
    detail::require_complete_sets(folder->name(), names, "");
    for (auto& file : files) places.push_back({folder, std::move(file.path)});
  }
  return {places.size(),
          [&](std::size_t number) {
            const Place& place = places[number];
            return place.folder ? place.folder->open(place.path) : open_file(place.path, storage);
          },
          options};
}

}  // namespace libtrain::data
