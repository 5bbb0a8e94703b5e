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
using detail::TarField;

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
  if (name.size() <= detail::kTarName.bytes) return SplitName{.name = name};
  const std::size_t slash = name.find('/', name.size() - detail::kTarName.bytes - 1);
  if (slash == std::string_view::npos || slash == 0 || slash > detail::kTarPrefix.bytes) return std::nullopt;
  return SplitName{.prefix = name.substr(0, slash), .name = name.substr(slash + 1)};
}

class HeaderBlock {
 public:
  HeaderBlock(const SplitName& name, std::uint64_t bytes, detail::TarType type) {
    put(detail::kTarName, name.name);
    put_octal(detail::kTarMode, 0644);
    put_octal(detail::kTarUser, 0);
    put_octal(detail::kTarGroup, 0);
    put_octal(detail::kTarSize, bytes);
    put_octal(detail::kTarTime, 0);
    put(detail::kTarChecksum, "        ");  // counts as spaces in its own sum
    block_[detail::kTarType] = static_cast<char>(type);
    put(detail::kTarMagic, detail::kTarPosixMagic);
    put(detail::kTarVersion, "00");
    put_octal(detail::kTarDeviceMajor, 0);
    put_octal(detail::kTarDeviceMinor, 0);
    put(detail::kTarPrefix, name.prefix);
    std::uint64_t sum = 0;
    for (const char byte : block_) sum += static_cast<std::uint8_t>(byte);
    // Its last space stays, behind the zero.
    put_octal({.begin = detail::kTarChecksum.begin, .bytes = detail::kTarChecksum.bytes - 1}, sum);
  }

  std::string_view bytes() const { return block_; }

 private:
  void put(TarField field, std::string_view bytes) { block_.replace(field.begin, bytes.size(), bytes); }

  void put_octal(TarField field, std::uint64_t number) {
    std::size_t place = field.begin + field.bytes - 1;
    block_[place] = '\0';
    for (; place-- > field.begin; number >>= 3) block_[place] = static_cast<char>('0' + (number & 7));
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
  const SplitName shown = parts.value_or(SplitName{.name = name.substr(0, detail::kTarName.bytes)});
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
