#include <libtrain/data/formats/tar.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/detail/file_buffer.hpp>
#include <libtrain/data/formats/detail/tar_header.hpp>

namespace libtrain::data {

namespace {

using detail::kTarBlock;
using detail::TarHeader;
using detail::TarType;

// Extended headers hold access lists and the like besides names.
constexpr std::uint64_t kLongestPaxHeader = std::uint64_t{1} << 20;

// GNU tar fills the last record, which takes 10 KiB unless --blocking-factor says otherwise.
constexpr std::uint64_t kLongestFilling = std::uint64_t{1} << 20;
constexpr std::uint64_t kFillingRead = std::uint64_t{64} << 10;

bool is_regular(TarType type) {
  return type == TarType::regular || type == TarType::regular_before_posix || type == TarType::contiguous;
}

// Walks from header to header. What extended headers say is kept until the member that they precede.
class Walk {
 public:
  explicit Walk(const File& file) : file_(file), window_(file), size_(file.size()) {}

  ShardIndex run() {
    while (!read_end()) {
      const TarHeader header = detail::parse_tar_header(block_at(offset_), file_.name(), offset_);
      offset_ += kTarBlock;
      read_entry(header);
    }
    require_end();
    return std::move(index_);
  }

 private:
  // Reads the two zero blocks, where they stand here.
  bool read_end() {
    if (!is_zero(block_at(offset_))) return false;
    if (!is_zero(block_at(offset_ + kTarBlock))) {
      fail("expected two zero blocks at the end of the archive, found one");
    }
    if (is_extended_) fail("expected the member that the extended headers in front belong to, found the end");
    return true;
  }

  // Archives that were joined, or in which pages were lost, would be read as far as their first zeros otherwise.
  void require_end() {
    const std::uint64_t begin = offset_ + 2 * kTarBlock;
    const std::uint64_t left = size_ - begin;
    const std::uint64_t end = begin + std::min(left, kLongestFilling);
    for (std::uint64_t offset = begin; offset < end;) {
      const auto part = window_.at(offset, static_cast<std::size_t>(std::min(end - offset, kFillingRead)));
      const auto other = part.find_first_not_of('\0');
      if (other != std::string_view::npos) fail_behind("something else", offset + other);
      offset += part.size();
    }
    if (left > kLongestFilling) fail_behind(text(left, " bytes in all"), begin);
  }

  [[noreturn]] void fail_behind(const std::string& found, std::uint64_t offset) const {
    detail::fail_tar(file_.name(), offset,
                     text("expected only zeros, and at most ", kLongestFilling,
                          ", behind the end of the archive at byte offset ", offset_, ", found ", found,
                          " (archives were joined, or a part was overwritten by zeros); write it again"));
  }

  void read_entry(const TarHeader& header) {
    switch (header.type) {
      case TarType::gnu_long_name:
        long_name_ = take_text(header, kLongestTarName + 1);
        long_name_->resize(std::min(long_name_->find('\0'), long_name_->size()));
        is_extended_ = true;
        return;
      case TarType::gnu_long_link:
        skip(header.bytes);
        is_extended_ = true;
        return;
      case TarType::pax:
      case TarType::pax_solaris:
        read_pax(header, local_);
        is_extended_ = true;
        return;
      case TarType::pax_global:
        return read_global_pax(header);
      case TarType::gnu_sparse:
        offset_ -= kTarBlock;
        fail("expected a file that is stored whole, found a sparse one; pack it without --sparse");
      default:
        read_member(header);
        local_.path.reset();
        local_.size.reset();
        long_name_.reset();
        is_extended_ = false;
    }
  }

  void read_member(const TarHeader& header) {
    std::string name = long_name_.value_or(header.name);
    if (const auto* path = value_of(local_.path, {})) name = *path;
    switch (header.type) {
      case TarType::hard_link:
      case TarType::symbolic_link:
      case TarType::character_device:
      case TarType::block_device:
      case TarType::directory:
      case TarType::fifo:
        return;  // whatever their size field says, no data follow
      default:
        break;
    }
    // So the seventh edition of Unix marked directories.
    if (header.type == TarType::regular_before_posix && name.ends_with('/')) return;

    const std::uint64_t bytes = size_of(header);
    const std::uint64_t begin = offset_;
    skip(bytes);
    if (is_regular(header.type)) index_.add(begin, bytes, checked(name, begin));
  }

  const std::string& checked(const std::string& name, std::uint64_t begin) const {
    const std::uint64_t header = begin - kTarBlock;
    if (name.empty()) detail::fail_tar(file_.name(), header, "expected the name of a member, found none");
    if (name.size() > kLongestTarName) {
      detail::fail_tar(file_.name(), header,
                       text("expected a name of at most ", kLongestTarName, " bytes, found ", name.size()));
    }
    if (name.find('\0') != std::string::npos) {
      detail::fail_tar(file_.name(), header, "expected a name without zero bytes, found one with");
    }
    return name;
  }

  std::uint64_t size_of(const TarHeader& header) const {
    const std::string* const decimal = value_of(local_.size, global_.size);
    if (decimal == nullptr) return header.bytes;
    std::uint64_t bytes = 0;
    const char* const end = decimal->data() + decimal->size();
    const auto [stop, error] = std::from_chars(decimal->data(), end, bytes);
    if (error != std::errc{} || stop != end) fail("expected a decimal size in the extended header, found another");
    return bytes;
  }

  // A member's own header comes before the global one; an empty value leaves what the plain header says.
  static const std::string* value_of(const std::optional<std::string>& local,
                                     const std::optional<std::string>& global) {
    const auto& chosen = local ? local : global;
    return chosen && !chosen->empty() ? &*chosen : nullptr;
  }

  void read_pax(const TarHeader& header, detail::PaxValues& values) {
    const std::uint64_t begin = offset_;
    detail::parse_pax(take_text(header, kLongestPaxHeader), file_.name(), begin, values);
  }

  // Millions of members with a long name in a single header would take far more memory than the archive.
  void read_global_pax(const TarHeader& header) {
    read_pax(header, global_);
    if (value_of(global_.path, {}) != nullptr) {
      fail("expected a name for each member, found one for all in the global extended header in front");
    }
  }

  std::string take_text(const TarHeader& header, std::uint64_t limit_bytes) {
    if (header.bytes > limit_bytes) {
      fail(text("expected an extended header of at most ", limit_bytes, " bytes, found one of ", header.bytes));
    }
    const std::uint64_t begin = offset_;
    skip(header.bytes);
    return std::string{window_.at(begin, static_cast<std::size_t>(header.bytes))};
  }

  // Over data and what fills their last block.
  void skip(std::uint64_t bytes) {
    const std::uint64_t left = size_ - offset_;
    const std::uint64_t filling = (kTarBlock - bytes % kTarBlock) % kTarBlock;
    if (bytes > left || filling > left - bytes) {
      fail(text("expected ", bytes, " bytes of data and ", filling, " of filling, found the end of the file after ",
                left, " (it is truncated)"));
    }
    offset_ += bytes + filling;
  }

  std::string_view block_at(std::uint64_t offset) {
    const std::uint64_t left = size_ - offset_;
    if (left < offset - offset_ + kTarBlock) {
      fail(text("expected a header or two zero blocks, found the end of the file after ", left,
                " bytes (it is truncated, or not a tar file)"));
    }
    return window_.at(offset, kTarBlock);
  }

  static bool is_zero(std::string_view block) { return block.find_first_not_of('\0') == std::string_view::npos; }

  [[noreturn]] void fail(const std::string& expected_and_found) const {
    detail::fail_tar(file_.name(), offset_, expected_and_found);
  }

  const File& file_;
  detail::ReadWindow window_;
  std::uint64_t size_;
  std::uint64_t offset_ = 0;
  ShardIndex index_;
  detail::PaxValues global_;
  detail::PaxValues local_;
  std::optional<std::string> long_name_;
  bool is_extended_ = false;
};

// An archive begins with a name: gzip's first bytes are none, but zlib's might be.
Compression compression_of_archive(const File& file) {
  const auto begin = detail::read_range(file, 0, std::min<std::uint64_t>(file.size(), 2));
  return compression_of(begin) == Compression::gzip ? Compression::gzip : Compression::none;
}

// Between two members that are read at once: their headers and some small members. From the page cache so much takes
// about as long as another system call.
constexpr std::uint64_t kLargestGap = std::uint64_t{16} << 10;

constexpr detail::ShardFormat kTar{.name = "tar", .compression = &compression_of_archive, .index = &index_tar};

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

ShardIndex index_tar(const File& file) {
  return Walk(file).run();
}

TarFile::TarFile(std::unique_ptr<const File> file, const ShardOptions& options)
    : shard_(detail::open_shard(std::move(file), kTar, options)) {}

void TarFile::require_member(std::uint64_t member) const {
  if (member >= size()) {
    throw UsageError(
        text("Member ", member, " of tar file '", name(), "' was asked for, which has ", size(), " regular files."));
  }
}

std::string_view TarFile::member_name(std::uint64_t member) const {
  require_member(member);
  return shard_.index.name(member);
}

std::uint64_t TarFile::bytes(std::uint64_t member) const {
  require_member(member);
  return shard_.index.bytes(member);
}

std::uint64_t TarFile::offset(std::uint64_t member) const {
  require_member(member);
  return shard_.index.offset(member);
}

// With the header in front, which tells whether an index that was kept fits.
void TarFile::read(std::uint64_t member, std::string& data) const {
  require_member(member);
  std::array<char, kTarBlock> header{};
  data.resize(static_cast<std::size_t>(bytes(member)));
  shard_.file->read_parts_at(offset(member) - kTarBlock, std::as_writable_bytes(std::span{header}),
                             std::as_writable_bytes(std::span{data}));
  require_header(member, {header.data(), header.size()});
}

void TarFile::read(std::uint64_t member, std::string& data, std::uint64_t other, std::string& other_data) const {
  const auto begin = std::min(offset(member), offset(other));
  const auto end = std::max(offset(member) + bytes(member), offset(other) + bytes(other));
  if (kTarBlock + end - begin > bytes(member) + kLargestGap + bytes(other)) {
    read(member, data);
    read(other, other_data);
    return;
  }
  std::array<char, kTarBlock> front{};
  data.resize(static_cast<std::size_t>(end - begin));
  shard_.file->read_parts_at(begin - kTarBlock, std::as_writable_bytes(std::span{front}),
                             std::as_writable_bytes(std::span{data}));
  const auto header_of = [&](std::uint64_t which) {
    if (offset(which) == begin) return std::string_view{front.data(), front.size()};
    return std::string_view{data}.substr(static_cast<std::size_t>(offset(which) - begin) - kTarBlock);
  };
  require_header(member, header_of(member));
  require_header(other, header_of(other));
  other_data.assign(data, static_cast<std::size_t>(offset(other) - begin), static_cast<std::size_t>(bytes(other)));
  data.erase(0, static_cast<std::size_t>(offset(member) - begin));
  data.resize(static_cast<std::size_t>(bytes(member)));
}

// An extended header in front of this one may hold the size, which need not be here then.
void TarFile::require_header(std::uint64_t member, std::string_view block) const {
  try {
    const TarHeader header = detail::parse_tar_header(block.substr(0, kTarBlock), name(), offset(member) - kTarBlock);
    const bool may_be_elsewhere = header.bytes == 0 || bytes(member) > kLargestOctal;
    if (is_regular(header.type) && (header.bytes == bytes(member) || may_be_elsewhere)) return;
  } catch (const EnvironmentError&) {
  }
  detail::fail_changed_shard(describe(member));
}

std::string TarFile::describe(std::uint64_t member) const {
  return text("Tar file '", name(), "', member '", member_name(member), "' at byte offset ", offset(member));
}

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
