// Texts in CSV, TSV and JSON lines: every byte sequence is read or refused by an EnvironmentError, or by a UsageError
// about its columns, and what was read is UTF-8 and not more than the file.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <simdjson.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/data/labelled_texts.hpp>

#include <tests/data/memory_file.hpp>
#include <tests/fuzz/target.hpp>

namespace lt = libtrain;
namespace data = libtrain::data;

namespace {

void read(const std::string& content, const data::LabelledTextsOptions& options) {
  try {
    std::vector<std::unique_ptr<const data::File>> files;
    files.push_back(data::memory_file(content));
    const data::LabelledTexts texts(std::move(files), options);
    std::size_t bytes = 0;
    for (std::uint64_t row = 0; row < texts.size(); ++row) {
      require(!texts.text(row).empty() && simdjson::validate_utf8(texts.text(row)));
      bytes += texts.text(row).size() + texts.second_text(row).size();
      if (texts.classes().empty()) continue;
      for (const auto number : texts.classes_of(row)) require(number < texts.classes().size());
    }
    require(bytes <= content.size());
    ++read_inputs;
  } catch (const lt::EnvironmentError&) {
  } catch (const lt::UsageError&) {
  }
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  return {"sentence1,sentence2,label\r\n\"a, \"\"b\"\"\nc\",d,1\r\n\xc3\xa9,f,\"0\"\r\n",
          "label\tsentence\n1\ta \"quote\n0\tb\n",
          "{\"text\": \"a\\u00e9\\n\", \"label\": [\"x\", \"y\"]}\n{\"label\": 1.5, \"text\": \"b\", \"more\": {}}\n"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  lt::set_log_level(lt::LogLevel::error);
  const std::string content{reinterpret_cast<const char*>(bytes), size};
  const auto bad_texts = size % 3 == 0 ? data::BadTexts::leave_out : data::BadTexts::refuse;
  for (const auto format : {data::TextFormat::csv, data::TextFormat::tsv, data::TextFormat::json_lines}) {
    for (const auto labels :
         {data::TextLabels::classes, data::TextLabels::several_classes, data::TextLabels::numbers}) {
      read(content, {.format = format, .labels = labels, .bad_texts = bad_texts});
    }
  }
  return 0;
}
