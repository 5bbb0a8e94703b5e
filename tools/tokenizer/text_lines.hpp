#pragma once

#include <cstddef>
#include <fstream>
#include <string>
#include <vector>

namespace libtrain::tokenizer_tool {

/// The lines of files, one file after the other, without their ends ("\n" or "\r\n") and without a byte order mark
/// before the first. "-" is standard input.
class TextLines {
 public:
  /// Of standard input if there are no files.
  explicit TextLines(std::vector<std::string> files);

  /// The next lines, about `bytes` bytes of them; none at the end. Throws EnvironmentError that names a file that
  /// cannot be read.
  std::vector<std::string> next(std::size_t bytes);

  /// The place of line `index` of the lines that next() returned last: "File 'a.txt', line 7".
  std::string place(std::size_t index) const;

 private:
  struct Begin {
    std::size_t index = 0;   // of the first of the last lines that is from this file
    std::size_t number = 0;  // of this line in the file, from 1 on
    std::string file = {};
  };

  bool open_next();

  std::vector<std::string> files_;
  std::size_t opened_ = 0;
  std::ifstream file_;
  std::size_t number_ = 0;  // lines read of the file
  std::vector<Begin> begins_ = {};
};

}  // namespace libtrain::tokenizer_tool
