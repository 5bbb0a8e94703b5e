#include <libtrain/data/formats/tar.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/detail/file_buffer.hpp>
#include <libtrain/data/formats/detail/tar_header.hpp>

namespace libtrain::data {

namespace {

using detail::kTarBlock;
using detail::TarHeader;
using detail::TarType;

// Extended headers contain names, but also access lists and the like.
constexpr std::uint64_t kLongestPaxHeader = std::uint64_t{1} << 20;

// GNU tar pads the last record, whose size is 10 KiB unless --blocking-factor is given.
constexpr std::uint64_t kLongestFilling = std::uint64_t{1} << 20;
constexpr std::uint64_t kFillingRead = std::uint64_t{64} << 10;

bool is_regular(TarType type) {
  return type == TarType::regular || type == TarType::regular_before_posix || type == TarType::contiguous;
}

// Walks from header to header. The values of extended headers apply to the next member.
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
  // Checks the two zero blocks if the current block is zero.
  bool read_end() {
    if (!is_zero(block_at(offset_))) return false;
    if (!is_zero(block_at(offset_ + kTarBlock))) {
      fail("expected two zero blocks at the end of the archive, found one");
    }
    if (is_extended_) fail("expected the member of the extended headers before, found the end");
    return true;
  }

  // Otherwise, only the part before the first zeros would be read of joined archives and of files with lost pages.
  void require_end() {
    const std::uint64_t begin = offset_ + 2 * kTarBlock;
    const std::uint64_t left = size_ - begin;
    const std::uint64_t end = begin + std::min(left, kLongestFilling);
    for (std::uint64_t offset = begin; offset < end;) {
      const auto part = window_.at(offset, static_cast<std::size_t>(std::min(end - offset, kFillingRead)));
      const auto other = part.find_first_not_of('\0');
      if (other != std::string_view::npos) fail_after_end("other bytes", offset + other);
      offset += part.size();
    }
    if (left > kLongestFilling) fail_after_end(text(left, " bytes"), begin);
  }

  [[noreturn]] void fail_after_end(const std::string& found, std::uint64_t offset) const {
    detail::fail_tar(file_.name(), offset,
                     text("expected only zeros, and at most ", kLongestFilling,
                          ", after the end of the archive at byte offset ", offset_, ", found ", found,
                          " (archives were joined, or a part was overwritten by zeros). Write it again"));
  }

  void read_entry(const TarHeader& header) {
    switch (header.type) {
      case TarType::gnu_long_name:
        long_name_ = take_name(header);
        is_extended_ = true;
        return;
      case TarType::gnu_long_link:
        long_link_ = take_name(header);
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
        fail("expected a file that is stored completely, found a sparse one. Pack it without --sparse");
      default:
        read_member(header);
        local_ = {};
        long_name_.reset();
        long_link_.reset();
        is_extended_ = false;
    }
  }

  void read_member(const TarHeader& header) {
    std::string name = long_name_.value_or(header.name);
    if (const auto* path = value_of(local_.path, {})) name = *path;
    switch (header.type) {
      case TarType::hard_link:
        return add_hard_link(name, link_of(header));
      case TarType::symbolic_link:
        fail_member(text("expected a file that is stored completely, found the symbolic link '", name, "' to '",
                         link_of(header), "'. Pack the file itself, for example by tar --dereference"));
      case TarType::character_device:
      case TarType::block_device:
      case TarType::directory:
      case TarType::fifo:
        return;  // no data follow, even if the size field is not 0
      default:
        break;
    }
    // The seventh edition of Unix marks directories by the slash.
    if (header.type == TarType::regular_before_posix && name.ends_with('/')) return;

    const std::uint64_t bytes = size_of(header);
    const std::uint64_t begin = offset_;
    skip(bytes);
    if (is_regular(header.type)) index_.add(begin, bytes, checked(name, begin));
  }

  std::string link_of(const TarHeader& header) const {
    const auto* path = value_of(local_.link, {});
    return path != nullptr ? *path : long_link_.value_or(header.link);
  }

  // A further name of a file that is stored before. Of members with the same name the last one counts.
  void add_hard_link(const std::string& name, const std::string& target) {
    for (; mapped_ < index_.size(); ++mapped_) members_.insert_or_assign(std::string(index_.name(mapped_)), mapped_);
    const auto member = members_.find(target);
    if (member == members_.end()) {
      fail_member(text("expected the file '", target, "' before its hard link '", name,
                       "', found none. Pack the file itself, for example by tar --hard-dereference"));
    }
    index_.add_link(member->second, checked(name, offset_));
  }

  [[noreturn]] void fail_member(const std::string& expected_and_found) const {
    detail::fail_tar(file_.name(), offset_ - kTarBlock, expected_and_found);
  }

  const std::string& checked(const std::string& name, std::uint64_t begin) const {
    const std::uint64_t header = begin - kTarBlock;
    if (name.empty()) detail::fail_tar(file_.name(), header, "expected the name of a member, found none");
    if (name.size() > kLongestTarName) {
      detail::fail_tar(file_.name(), header,
                       text("expected a name of at most ", kLongestTarName, " bytes, found ", name.size()));
    }
    if (name.find('\0') != std::string::npos) {
      detail::fail_tar(file_.name(), header, "expected a name without zero bytes, found a zero byte");
    }
    return name;
  }

  std::uint64_t size_of(const TarHeader& header) const {
    const std::string* const decimal = value_of(local_.size, global_.size);
    if (decimal == nullptr) return header.bytes;
    constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
    const auto bytes = libtrain::detail::parse_decimal<std::uint64_t>(*decimal, 0, kMax);
    if (!bytes) fail("expected a decimal size in the extended header, found something else");
    return *bytes;
  }

  // A member's own header overrides the global one; an empty value does not override the plain header.
  static const std::string* value_of(const std::optional<std::string>& local,
                                     const std::optional<std::string>& global) {
    const auto& chosen = local ? local : global;
    return chosen && !chosen->empty() ? &*chosen : nullptr;
  }

  void read_pax(const TarHeader& header, detail::PaxValues& values) {
    const std::uint64_t begin = offset_;
    detail::parse_pax(take_text(header, kLongestPaxHeader), file_.name(), begin, values);
  }

  // A long name in a single header for millions of members would take far more memory than the archive.
  void read_global_pax(const TarHeader& header) {
    read_pax(header, global_);
    if (value_of(global_.path, {}) != nullptr) {
      fail("expected a name for each member, found one for all members in the global extended header before");
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

  std::string take_name(const TarHeader& header) {
    std::string name = take_text(header, kLongestTarName + 1);
    name.resize(std::min(name.find('\0'), name.size()));
    return name;
  }

  // Skips data and the padding of their last block.
  void skip(std::uint64_t bytes) {
    const std::uint64_t left = size_ - offset_;
    const std::uint64_t filling = (kTarBlock - bytes % kTarBlock) % kTarBlock;
    if (bytes > left || filling > left - bytes) {
      fail(text("expected ", bytes, " bytes of data and ", filling, " of padding, found the end of the file after ",
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
  std::optional<std::string> long_link_;
  bool is_extended_ = false;
  std::unordered_map<std::string, std::size_t> members_;  // the first mapped_ ones, by name; filled for hard links
  std::size_t mapped_ = 0;
};

// An archive begins with a name, which may begin like zlib, but not like gzip.
Compression compression_of_archive(const File& file) {
  const auto begin = detail::read_range(file, 0, std::min<std::uint64_t>(file.size(), 2));
  return compression_of(begin) == Compression::gzip ? Compression::gzip : Compression::none;
}

// Maximum distance of two members in a single read: headers and some small members. Reading that much from the page
// cache takes about as long as another system call.
constexpr std::uint64_t kLargestGap = std::uint64_t{16} << 10;

constexpr detail::ShardFormat kTar{.name = "tar", .compression = &compression_of_archive, .index = &index_tar};

using detail::TarField;

constexpr std::uint64_t kLargestOctal = 077777777777;  // 11 digits

// The name of an extended header in Python's tarfile; programs that do not know extended headers show it.
constexpr std::string_view kExtendedHeader = "././@PaxHeader";

struct SplitName {
  std::string_view prefix = {};
  std::string_view name = {};
};

// Splits a long name at a slash for the two fields of ustar. std::nullopt if it does not fit.
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
    // Its last space stays after the zero.
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
        text("Member ", member, " of tar file '", name(), "' was requested, but it has ", size(), " regular files."));
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

// Reads the header as well, to check that a loaded index fits.
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

// If an extended header before this one contains the size, this one need not.
void TarFile::require_header(std::uint64_t member, std::string_view block) const {
  member = shard_.index.target(member);
  TarHeader header;
  try {
    header = detail::parse_tar_header(block.substr(0, kTarBlock), name(), offset(member) - kTarBlock);
  } catch (const EnvironmentError&) {
    detail::fail_changed_shard(describe(member));
  }
  const bool may_be_elsewhere = header.bytes == 0 || bytes(member) > kLargestOctal;
  const bool has_bytes = header.bytes == bytes(member) || may_be_elsewhere;
  if (is_regular(header.type) && has_bytes && has_name(member, header.name)) return;
  detail::fail_changed_shard(describe(member));
}

// An archive with the same members in another order differs in the names alone. A name that does not fit the field is
// not compared. One that does may still be in an extended header, which lies behind the data of the previous member.
bool TarFile::has_name(std::uint64_t member, const std::string& in_header) const {
  const std::string_view name = member_name(member);
  const auto field = split(name);
  if (in_header == name || !field || !field->prefix.empty()) return true;
  const std::uint64_t end = offset(member) - kTarBlock;
  const std::uint64_t behind = member == 0 ? 0 : offset(member - 1) + bytes(member - 1);
  const std::uint64_t length = std::min(end - std::min(behind, end), 2 * kLongestPaxHeader);
  const std::string headers = detail::read_range(*shard_.file, end - length, static_cast<std::size_t>(length));
  return headers.find(text(" path=", name, '\n')) != std::string::npos ||
         headers.find(text('\0', name, '\0')) != std::string::npos;
}

std::string TarFile::describe(std::uint64_t member) const {
  return text("Tar file '", name(), "', member '", member_name(member), "' at byte offset ", offset(member));
}

TarWriter::TarWriter(std::string path) : file_(std::move(path)) {}

void TarWriter::require_open() const {
  if (file_.committed()) {
    throw UsageError(text("The tar file '", file_.path(), "' is finished. Add further members to another file."));
  }
}

void TarWriter::require_name(std::string_view name) const {
  const bool is_name = !name.empty() && name.size() <= kLongestTarName && !name.ends_with('/') &&
                       name.find('\0') == std::string_view::npos;
  if (!is_name) {
    throw UsageError(text("'", name.substr(0, std::min<std::size_t>(100, name.find('\0'))), "' (", name.size(),
                          " bytes) cannot be the name of a member of '", file_.path(), "'. Use 1 to ", kLongestTarName,
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
