#include <libtrain/data/storage/detail/staging_manifest.hpp>

#include <limits>
#include <utility>
#include <vector>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/detail/location.hpp>

namespace libtrain::data::detail {

namespace {

constexpr std::string_view kManifestFormat = "libtrain-staging 2 ";

bool is_printable(char character) {
  const auto byte = static_cast<unsigned char>(character);
  return byte > 0x20 && byte != 0x7f && byte != '%';
}

// One word without spaces, which is never empty.
std::string quote(std::string_view bytes) {
  return '=' + percent_encode(bytes, is_printable);
}

std::optional<std::string> unquote(std::string_view word) {
  if (!word.starts_with('=')) return std::nullopt;
  return percent_decode(word.substr(1));
}

std::optional<std::uint64_t> number_of(std::string_view digits) {
  return libtrain::detail::parse_decimal<std::uint64_t>(digits, 0, std::numeric_limits<std::uint64_t>::max());
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    const auto space = line.find(' ');
    words.push_back(line.substr(0, space));
    if (space == std::string_view::npos) return words;
    line.remove_prefix(space + 1);
  }
}

// Takes the next line off `rest`, and returns it without its end; std::nullopt if there is no complete line.
std::optional<std::string_view> take_line(std::string_view& rest) {
  const auto end = rest.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  const auto line = rest.substr(0, end);
  rest.remove_prefix(end + 1);
  return line;
}

std::optional<std::pair<std::string, StagedFile>> parse_file(std::string_view line) {
  const auto words = words_of(line);
  if (words.size() != 5 || words[0] != "file") return std::nullopt;
  const auto hash = parse_content_hash(words[1]);
  const auto size = number_of(words[2]);
  auto version = unquote(words[3]);
  auto path = unquote(words[4]);
  if (!hash || !size || !version || !path) return std::nullopt;
  return std::pair{std::move(*path), StagedFile{.size = *size, .version = std::move(*version), .hash = *hash}};
}

}  // namespace

std::string manifest_head(const std::string& source) {
  return text(kManifestFormat, quote(source), "\n");
}

std::string manifest_line(const std::string& path, const StagedFile& file) {
  return text("file ", to_string(file.hash), " ", file.size, " ", quote(file.version), " ", quote(path), "\n");
}

std::string manifest_end(std::string_view all_before, const StagedTotals& totals) {
  const auto line = text("end ", totals.files, " ", totals.bytes, " ");
  ContentHasher hasher;
  hasher.update(all_before);
  hasher.update(line);
  return text(line, to_string(hasher.digest()), "\n");
}

std::optional<StagedTotals> read_totals(std::string_view manifest, const std::string& source) {
  if (!manifest.starts_with(manifest_head(source)) || !manifest.ends_with('\n')) return std::nullopt;
  const auto last = manifest.substr(0, manifest.size() - 1).rfind('\n') + 1;
  const auto words = words_of(manifest.substr(last, manifest.size() - 1 - last));
  if (words.size() != 4 || words[0] != "end") return std::nullopt;
  const auto files = number_of(words[1]);
  const auto bytes = number_of(words[2]);
  if (!files || !bytes) return std::nullopt;
  const StagedTotals totals{.files = *files, .bytes = *bytes};
  if (manifest.substr(last) != manifest_end(manifest.substr(0, last), totals)) return std::nullopt;
  return totals;
}

StagedFiles read_files(std::string_view journal, const std::string& source) {
  StagedFiles files;
  const auto head = manifest_head(source);
  if (!journal.starts_with(head)) return files;
  journal.remove_prefix(head.size());
  while (const auto line = take_line(journal)) {
    auto file = parse_file(*line);
    if (!file) break;
    files.insert_or_assign(std::move(file->first), std::move(file->second));
  }
  return files;
}

}  // namespace libtrain::data::detail
