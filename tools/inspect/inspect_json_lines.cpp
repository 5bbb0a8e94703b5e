#include <tools/inspect/inspect.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/detail/json.hpp>
#include <libtrain/data/formats/json_lines.hpp>
#include <libtrain/data/formats/text_table.hpp>
#include <libtrain/data/storage/open_storage.hpp>

namespace libtrain::inspect {

namespace {

// Counts over the rows that have the column.
struct Column {
  std::uint64_t rows = 0;
  std::uint64_t empty_fields = 0;
};

// Calls visit(line, offset) for each line that is not blank, without its leading white space.
void for_each_row(const data::File& file, const std::function<void(std::string_view, std::uint64_t)>& visit) {
  std::string line;
  std::uint64_t begin = 0;
  const auto end_line = [&] {
    const std::string_view whole{line};
    const std::size_t first = whole.find_first_not_of(data::detail::kJsonSpace);
    if (first != std::string_view::npos) visit(whole.substr(first), begin + first);
    line.clear();
  };
  data::detail::for_each_piece(file, [&](std::string_view piece, std::uint64_t offset) {
    std::size_t position = 0;
    for (;;) {
      const std::size_t found = piece.find('\n', position);
      line += piece.substr(position, found - position);
      if (found == std::string_view::npos) return;
      end_line();
      position = found + 1;
      begin = offset + position;
    }
  });
  end_line();
}

bool is_empty(const nlohmann::json& value) {
  return value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty());
}

class RowChecker {
 public:
  explicit RowChecker(const std::string& file) : file_(file) {}

  void check(std::string_view line, std::uint64_t offset) {
    const auto row = nlohmann::json::parse(line, nullptr, false);
    if (row.is_object()) {
      count(row);
    } else {
      const std::string found = row.is_discarded() ? "invalid JSON" : row.type_name();
      BadSample& bad = bad_rows_.emplace_back();
      bad.index = rows_;
      bad.origin = {.path = file_, .offset = offset};
      bad.reason = text("expected one JSON object on the line, found ", found, ".");
    }
    ++rows_;
  }

  Json columns() const {
    Json list = Json::array();
    for (const auto& [name, column] : columns_) {
      Json each = Json::object();
      each["name"] = name;
      each["empty_fields"] = column.empty_fields;
      each["rows_without"] = rows_ - bad_rows_.size() - column.rows;
      list.push_back(std::move(each));
    }
    return list;
  }

  std::vector<BadSample> take_bad_rows() { return std::move(bad_rows_); }

 private:
  void count(const nlohmann::json& row) {
    for (const auto& [name, value] : row.items()) {
      Column& column = columns_[name];
      ++column.rows;
      if (is_empty(value)) ++column.empty_fields;
    }
  }

  const std::string& file_;
  std::uint64_t rows_ = 0;
  std::map<std::string, Column> columns_;
  std::vector<BadSample> bad_rows_;
};

}  // namespace

Report inspect_json_lines(const InspectOptions& options) {
  const std::shared_ptr<const data::File> file = data::open_file(options.data);
  Report report;
  report.facts["data"] = file->name();
  report.facts["format"] = "JSON lines";
  report.facts["bytes"] = file->size();
  report.facts["rows"] = data::JsonLines(file).size();
  if (options.check == Check::none) return report;
  RowChecker checker(file->name());
  for_each_row(*file, [&](std::string_view line, std::uint64_t offset) { checker.check(line, offset); });
  report.facts["columns"] = checker.columns();
  report.bad_samples = checker.take_bad_rows();
  return report;
}

}  // namespace libtrain::inspect
