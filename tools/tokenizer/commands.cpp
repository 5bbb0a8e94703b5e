#include <tools/tokenizer/commands.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <iostream>
#include <span>
#include <sstream>
#include <string_view>
#include <thread>

#include <nlohmann/json.hpp>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

#include <tools/tokenizer/text_lines.hpp>

namespace libtrain::tokenizer_tool {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kBytesAtOnce = std::size_t{4} << 20U;

// "[3,4]" or "3 4".
void append_ids(const std::vector<std::int64_t>& ids, char separator, std::string& to) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) to += separator;
    to += std::to_string(ids[i]);
  }
}

void append_encoding(const Encoding& encoding, const EncodeCommand& command, std::string& to) {
  if (command.style == Style::text) {
    append_ids(encoding.ids, ' ', to);
    to += '\n';
    return;
  }
  to += R"({"ids":[)";
  append_ids(encoding.ids, ',', to);
  to += ']';
  if (command.options.offsets) {
    to += R"(,"offsets":[)";
    for (std::size_t i = 0; i < encoding.offsets.size(); ++i) {
      to += text(i > 0 ? "," : "", '[', encoding.offsets[i].begin, ',', encoding.offsets[i].end, ']');
    }
    to += ']';
  }
  to += encoding.truncated ? ",\"truncated\":true}\n" : ",\"truncated\":false}\n";
}

// Calls body(), and puts the place of a line before what is wrong with it.
template <typename Body>
void at_line(const TextLines& input, std::size_t line, const Body& body) {
  try {
    body();
  } catch (const UsageError& error) {
    throw UsageError(text(input.place(line), ": ", error.what()));
  }
}

// Encodes the last lines of the input, each thread its part of them, and returns what to print in their order.
std::vector<std::string> encode_lines(const Tokenizer& tokenizer, const std::vector<std::string>& lines,
                                      const TextLines& input, const EncodeCommand& command) {
  const auto count = static_cast<std::size_t>(command.threads);
  std::vector<std::string> parts(count);
  std::vector<std::exception_ptr> failures(count);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        try {
          for (std::size_t line = lines.size() * i / count; line < lines.size() * (i + 1) / count; ++line) {
            at_line(input, line,
                    [&] { append_encoding(tokenizer.encode(lines[line], command.options), command, parts[i]); });
          }
        } catch (...) {
          failures[i] = std::current_exception();
        }
      });
    }
  }
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return parts;
}

std::vector<std::int64_t> read_ids(const std::string& line, const std::string& place) {
  std::vector<std::int64_t> ids;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const auto id = parse_integer(word, 0, INT64_MAX);
    if (!id) throw EnvironmentError(text(place, ": '", word, "' is no id. Separate ids by spaces, one text a line."));
    ids.push_back(*id);
  }
  return ids;
}

}  // namespace

void encode(const EncodeCommand& command) {
  const Tokenizer tokenizer = read_tokenizer(command.tokenizer);
  TextLines input(command.files);
  for (auto lines = input.next(kBytesAtOnce); !lines.empty(); lines = input.next(kBytesAtOnce)) {
    for (const std::string& part : encode_lines(tokenizer, lines, input, command)) std::cout << part;
    std::cout.flush();
  }
}

void decode(const DecodeCommand& command) {
  const Tokenizer tokenizer = read_tokenizer(command.tokenizer);
  TextLines input(command.files);
  for (auto lines = input.next(kBytesAtOnce); !lines.empty(); lines = input.next(kBytesAtOnce)) {
    for (std::size_t i = 0; i < lines.size(); ++i) {
      std::string decoded;
      at_line(input, i, [&] { decoded = tokenizer.decode(read_ids(lines[i], input.place(i)), command.options); });
      std::cout << (command.style == Style::json ? Json{{"text", decoded}}.dump() : decoded) << '\n';
    }
  }
}

void train(const TrainCommand& command) {
  for (const char* name : {"tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json"}) {
    const auto path = std::filesystem::path(command.output) / name;
    if (command.replace || !std::filesystem::exists(path)) continue;
    throw UsageError(text("File '", path.string(), "' exists. Name another folder, or replace it with --force."));
  }
  TokenizerTrainer trainer(command.options);
  TextLines input(command.files);
  std::uint64_t lines_read = 0;
  for (auto lines = input.next(kBytesAtOnce); !lines.empty(); lines = input.next(kBytesAtOnce)) {
    trainer.add(lines);
    lines_read += lines.size();
  }
  const Tokenizer tokenizer = trainer.train();
  write_tokenizer(tokenizer, command.output);
  if (command.style == Style::json) {
    std::cout << Json{{"lines", lines_read},
                      {"words", trainer.words()},
                      {"tokens", tokenizer.vocabulary_size()},
                      {"folder", command.output}}
                     .dump()
              << '\n';
  } else {
    std::cout << command.output << ": " << tokenizer.vocabulary_size() << " tokens, learnt from " << trainer.words()
              << " different words of " << lines_read << " lines\n";
  }
}

}  // namespace libtrain::tokenizer_tool
