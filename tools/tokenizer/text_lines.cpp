#include <tools/tokenizer/text_lines.hpp>

#include <cerrno>
#include <cstdio>
#include <iostream>
#include <string_view>
#include <system_error>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::tokenizer_tool {

namespace {

constexpr const char* kStandardInput = "-";
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

[[noreturn]] void fail(const std::string& file) {
  const std::string reason = std::generic_category().message(errno);
  throw EnvironmentError(text("File '", file, "' cannot be read: ", reason, ". Check the path and its permissions."));
}

}  // namespace

TextLines::TextLines(std::vector<std::string> files) : files_(std::move(files)) {
  if (files_.empty()) files_.emplace_back(kStandardInput);
}

bool TextLines::open_next() {
  if (opened_ == files_.size()) return false;
  const std::string& file = files_[opened_++];
  number_ = 0;
  if (file == kStandardInput) return true;
  errno = 0;
  file_ = std::ifstream(file, std::ios::binary);
  // Of a folder, only reading fails.
  if (!file_.is_open() || (file_.peek(), file_.bad())) fail(file);
  file_.clear();
  return true;
}

std::vector<std::string> TextLines::next(std::size_t bytes) {
  std::vector<std::string> lines;
  begins_.clear();
  if (opened_ == 0 && !open_next()) return lines;
  for (std::size_t total = 0; total < bytes;) {
    const std::string& file = files_[opened_ - 1];
    std::istream& stream = file == kStandardInput ? std::cin : file_;
    std::string line;
    errno = 0;
    if (!std::getline(stream, line)) {
      // std::cin reads with stdio's functions, and takes their errors for the end.
      if (stream.bad() || (file == kStandardInput && std::ferror(stdin) != 0)) fail(file);
      if (!open_next()) break;
      continue;
    }
    if (number_++ == 0 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    if (line.ends_with('\r')) line.pop_back();
    if (begins_.empty() || begins_.back().file != file || number_ == 1)
      begins_.push_back({lines.size(), number_, file});
    total += line.size() + 1;
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string TextLines::place(std::size_t index) const {
  const Begin* begin = &begins_.front();
  for (const Begin& each : begins_) {
    if (each.index <= index) begin = &each;
  }
  const std::string file = begin->file == kStandardInput ? "Standard input" : text("File '", begin->file, "'");
  return text(file, ", line ", begin->number + index - begin->index);
}

}  // namespace libtrain::tokenizer_tool
