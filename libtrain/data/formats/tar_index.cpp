#include <libtrain/data/formats/tar_index.hpp>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/pax.hpp>
#include <libtrain/data/formats/read_window.hpp>
#include <libtrain/data/formats/tar_header.hpp>

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

  static bool is_regular(TarType type) {
    return type == TarType::regular || type == TarType::regular_before_posix || type == TarType::contiguous;
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

}  // namespace

ShardIndex index_tar(const File& file) {
  return Walk(file).run();
}

}  // namespace libtrain::data
