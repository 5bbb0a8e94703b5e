// libtrain's side of labelled_texts_peer_test.py: says which texts and labels it finds in files that Python made.
//
//   labelled_texts_program LABELS TEXT SECOND LABEL HEADER FILE...
//
// LABELS is a number of TextLabels; TEXT, SECOND and LABEL are columns, "" for those with usual names; HEADER is 0 for
// files without one. A row is a line of its texts as hexadecimal digits and its labels. Exit codes are libtrain's.

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/data/labelled_texts.hpp>

#include <tests/support/run_program.hpp>

namespace data = libtrain::data;

namespace {

void print(std::string_view bytes) {
  std::fputs("=", stdout);
  for (const char byte : bytes) std::printf("%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
}

void print_row(const data::LabelledTexts& texts, std::uint64_t row) {
  print(texts.text(row));
  if (texts.has_pairs()) print(texts.second_text(row));
  if (texts.labels() == data::TextLabels::numbers) std::printf(" %.17g", texts.number(row));
  if (!texts.classes().empty()) {
    for (const auto number : texts.classes_of(row)) std::printf(" %s", texts.classes()[number].c_str());
  }
  std::puts("");
}

}  // namespace

int main(int argc, char** argv) {
  return libtrain::test::run_program([&] {
    const std::vector<std::string> words(argv + 1, argv + argc);
    const auto texts =
        data::read_labelled_texts({words.begin() + 5, words.end()},
                                  {.header = words[4] == "0" ? data::CsvHeader::none : data::CsvHeader::first_row,
                                   .text_column = words[1],
                                   .second_column = words[2],
                                   .label_column = words[3],
                                   .labels = static_cast<data::TextLabels>(std::atoi(words[0].c_str()))});
    for (std::uint64_t row = 0; row < texts.size(); ++row) print_row(texts, row);
  });
}
