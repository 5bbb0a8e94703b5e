#include <libtrain/data/formats/tar_writer.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/pax.hpp>
#include <libtrain/data/formats/tar_header.hpp>
#include <libtrain/data/formats/tar_index.hpp>

namespace libtrain::data {

namespace {

using detail::kTarBlock;

constexpr std::size_t kNameBytes = 100;
constexpr std::size_t kPrefixBytes = 155;
constexpr std::uint64_t kLargestOctal = 077777777777;  // 11 digits

// What Python's tarfile calls an extended header, too: it is shown by programs that do not know them.
constexpr std::string_view kExtendedHeader = "././@PaxHeader";

struct SplitName {
  std::string_view prefix = {};
  std::string_view name = {};
};

// A name as ustar holds it: parted at a slash where it is long. Nothing where it does not fit.
std::optional<SplitName> split(std::string_view name) {
  const auto is_ascii = [](char c) { return static_cast<std::uint8_t>(c) < 0x80; };
  if (!std::all_of(name.begin(), name.end(), is_ascii)) return std::nullopt;
  if (name.size() <= kNameBytes) return SplitName{.name = name};
  const std::size_t slash = name.find('/', name.size() - kNameBytes - 1);
  if (slash == std::string_view::npos || slash == 0 || slash > kPrefixBytes) return std::nullopt;
  return SplitName{.prefix = name.substr(0, slash), .name = name.substr(slash + 1)};
}

class HeaderBlock {
 public:
  HeaderBlock(const SplitName& name, std::uint64_t bytes, detail::TarType type) {
    put(0, name.name);
    put_octal(100, 7, 0644);
    put_octal(108, 7, 0);  // user
    put_octal(116, 7, 0);  // group
    put_octal(124, 11, bytes);
    put_octal(136, 11, 0);  // time
    put(148, "        ");   // counts as spaces in its own sum
    block_[156] = static_cast<char>(type);
    put(257, std::string_view{"ustar\00000", 8});
    put_octal(329, 7, 0);  // device
    put_octal(337, 7, 0);
    put(345, name.prefix);
    std::uint64_t sum = 0;
    for (const char byte : block_) sum += static_cast<std::uint8_t>(byte);
    put_octal(148, 6, sum);
    block_[154] = '\0';
  }

  std::string_view bytes() const { return block_; }

 private:
  void put(std::size_t begin, std::string_view bytes) { block_.replace(begin, bytes.size(), bytes); }

  void put_octal(std::size_t begin, std::size_t digits, std::uint64_t number) {
    for (std::size_t i = digits; i-- > 0; number >>= 3) block_[begin + i] = static_cast<char>('0' + (number & 7));
  }

  std::string block_ = std::string(kTarBlock, '\0');
};

}  // namespace

TarWriter::TarWriter(std::string path) : file_(std::move(path)) {}

void TarWriter::require_open() const {
  if (file_.committed()) {
    throw UsageError(text("The tar file '", file_.path(), "' is finished; add further members to another one."));
  }
}

void TarWriter::require_name(std::string_view name) const {
  const bool is_name = !name.empty() && name.size() <= kLongestTarName && !name.ends_with('/') &&
                       name.find('\0') == std::string_view::npos;
  if (!is_name) {
    throw UsageError(text("'", name.substr(0, std::min<std::size_t>(100, name.find('\0'))), "' (", name.size(),
                          " bytes) cannot be the name of a member of '", file_.path(), "'; use 1 to ", kLongestTarName,
                          " bytes without a zero byte and without a slash at the end."));
  }
}

void TarWriter::add(std::string_view name, std::string_view data) {
  require_open();
  require_name(name);
  const auto parts = split(name);
  const bool has_long_data = data.size() > kLargestOctal;
  std::string records;
  if (!parts) records += detail::pax_record("path", name);
  if (has_long_data) records += detail::pax_record("size", std::to_string(data.size()));
  if (!records.empty()) {
    file_.write(HeaderBlock({.name = kExtendedHeader}, records.size(), detail::TarType::pax).bytes());
    write_padded(records);
  }
  const SplitName shown = parts.value_or(SplitName{.name = name.substr(0, kNameBytes)});
  file_.write(HeaderBlock(shown, has_long_data ? 0 : data.size(), detail::TarType::regular).bytes());
  write_padded(data);
  ++size_;
}

void TarWriter::write_padded(std::string_view data) {
  file_.write(data);
  file_.write(std::string((kTarBlock - data.size() % kTarBlock) % kTarBlock, '\0'));
}

void TarWriter::finish() {
  require_open();
  file_.write(std::string(2 * kTarBlock, '\0'));
  file_.commit();
}

}  // namespace libtrain::data
