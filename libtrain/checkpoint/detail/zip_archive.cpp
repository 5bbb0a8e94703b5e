#include <libtrain/checkpoint/detail/zip_archive.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <zlib.h>

#include <libtrain/base/detail/little_endian.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/detail/file_fault.hpp>

namespace libtrain::detail {

namespace {

constexpr std::string_view kLocalSignature{"PK\3\4"};
constexpr std::string_view kCentralSignature{"PK\1\2"};
constexpr std::string_view kEndSignature{"PK\5\6"};
constexpr std::string_view kEnd64Signature{"PK\6\6"};
constexpr std::string_view kLocatorSignature{"PK\6\7"};
constexpr std::uint64_t kLocalBytes = 30;
constexpr std::uint64_t kCentralBytes = 46;
constexpr std::uint64_t kEndBytes = 22;
constexpr std::uint64_t kEnd64Bytes = 56;
constexpr std::uint64_t kLocatorBytes = 20;
constexpr std::uint64_t kMaxDirectoryBytes = std::uint64_t{256} << 20;
constexpr std::uint32_t kIn64Bits = 0xffffffffU;  // the number is in the extra field

// Reads the fields of a structure, one after the other.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : left_(bytes) {}

  std::string_view take(std::size_t count) {
    if (count > left_.size()) throw FileFault{"the directory of the zip archive is damaged"};
    const auto taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }

  template <typename Number>
  Number number() {
    return load_little_endian<Number>(take(sizeof(Number)).data());
  }

  bool is_empty() const { return left_.empty(); }

 private:
  std::string_view left_;
};

struct Directory {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  std::uint64_t end = 0;  // where what follows it begins
};

Directory find_directory(const InputFile& file) {
  const FileFault truncated{"the end of the zip archive is missing (the file is truncated)"};
  if (file.size() < kEndBytes) throw truncated;
  const std::uint64_t end_offset = file.size() - kEndBytes;
  const std::string end = file.read(end_offset, kEndBytes);
  if (!end.starts_with(kEndSignature)) throw truncated;
  Directory directory{.end = end_offset};
  Fields fields{std::string_view{end}.substr(10)};
  directory.count = fields.number<std::uint16_t>();
  directory.bytes = fields.number<std::uint32_t>();
  directory.offset = fields.number<std::uint32_t>();
  if (end_offset < kLocatorBytes) return directory;
  const std::string locator = file.read(end_offset - kLocatorBytes, kLocatorBytes);
  if (!locator.starts_with(kLocatorSignature)) return directory;
  directory.end = load_little_endian<std::uint64_t>(locator.data() + 8);
  const std::string end64 = file.read(directory.end, kEnd64Bytes);
  if (!end64.starts_with(kEnd64Signature)) throw FileFault{"the directory of the zip archive is damaged"};
  Fields wide{std::string_view{end64}.substr(32)};
  directory.count = wide.number<std::uint64_t>();
  directory.bytes = wide.number<std::uint64_t>();
  directory.offset = wide.number<std::uint64_t>();
  return directory;
}

// The 64-bit numbers in the place of those that are kIn64Bits.
void widen(std::string_view extra, std::vector<std::uint64_t*> numbers) {
  std::erase_if(numbers, [](const std::uint64_t* number) { return *number != kIn64Bits; });
  for (Fields fields{extra}; !numbers.empty();) {
    const auto kind = fields.number<std::uint16_t>();
    Fields content{fields.take(fields.number<std::uint16_t>())};
    if (kind != 1) continue;
    for (std::uint64_t* const number : numbers) *number = content.number<std::uint64_t>();
    return;
  }
}

struct Entry {
  std::string name = {};
  std::uint64_t header = 0;  // the offset of the local header
  ZipRecord record = {};
};

Entry read_entry(Fields& fields) {
  if (fields.take(4) != kCentralSignature) throw FileFault{"the directory of the zip archive is damaged"};
  fields.take(4);  // versions
  const auto flags = fields.number<std::uint16_t>();
  const auto method = fields.number<std::uint16_t>();
  fields.take(4);  // time
  Entry entry;
  entry.record.crc32 = fields.number<std::uint32_t>();
  std::uint64_t stored = fields.number<std::uint32_t>();
  entry.record.bytes = fields.number<std::uint32_t>();
  const auto name = fields.number<std::uint16_t>();
  const auto extra = fields.number<std::uint16_t>();
  const auto comment = fields.number<std::uint16_t>();
  fields.take(8);  // number of the part, attributes
  entry.header = fields.number<std::uint32_t>();
  entry.name = fields.take(name);
  widen(fields.take(extra), {&entry.record.bytes, &stored, &entry.header});
  fields.take(comment);
  entry.record.is_plain = method == 0 && (flags & 1) == 0;
  if (entry.record.is_plain && stored != entry.record.bytes) {
    throw FileFault{text("record '", entry.name, "' of the zip archive has two sizes")};
  }
  entry.record.bytes = stored;
  return entry;
}

// Sets where the data begins; returns where it ends.
std::uint64_t locate_record(const InputFile& file, Entry& entry, std::uint64_t limit) {
  const FileFault damaged{text("the header of record '", entry.name, "' of the zip archive is damaged")};
  if (entry.header > limit || limit - entry.header < kLocalBytes) throw damaged;
  const std::string header = file.read(entry.header, kLocalBytes);
  if (!header.starts_with(kLocalSignature)) throw damaged;
  Fields lengths{std::string_view{header}.substr(26)};
  const std::uint64_t name = lengths.number<std::uint16_t>();
  entry.record.offset = entry.header + kLocalBytes + name + lengths.number<std::uint16_t>();
  if (entry.record.offset > limit || entry.record.bytes > limit - entry.record.offset) throw damaged;
  if (file.read(entry.header + kLocalBytes, name) != entry.name) throw damaged;
  return entry.record.offset + entry.record.bytes;
}

std::uint32_t crc32_of(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace

ZipArchive::ZipArchive(const InputFile& file) : file_(file) {
  const auto [offset, bytes, count, end] = find_directory(file);
  if (end > file.size() || offset > end || bytes != end - offset || bytes > kMaxDirectoryBytes ||
      count > bytes / kCentralBytes) {
    throw FileFault{"the directory of the zip archive is damaged"};
  }
  read_directory(file.read(offset, bytes), count, offset);
}

void ZipArchive::read_directory(std::string_view directory, std::uint64_t count, std::uint64_t directory_offset) {
  std::vector<Entry> entries;
  Fields fields{directory};
  for (std::uint64_t i = 0; i < count; ++i) entries.push_back(read_entry(fields));
  if (!fields.is_empty()) throw FileFault{"the directory of the zip archive is damaged"};
  std::ranges::sort(entries, {}, &Entry::header);
  std::uint64_t end = 0;
  for (Entry& entry : entries) {
    if (entry.header < end) throw FileFault{text("record '", entry.name, "' of the zip archive overlaps another")};
    end = locate_record(file_, entry, directory_offset);
    if (!records_.emplace(entry.name, entry.record).second) {
      throw FileFault{text("record '", entry.name, "' is twice in the zip archive")};
    }
  }
}

const ZipRecord* ZipArchive::find(std::string_view name) const {
  const auto found = records_.find(name);
  return found == records_.end() ? nullptr : &found->second;
}

void ZipArchive::read(const ZipRecord& record, std::span<std::byte> to) const {
  if (!record.is_plain) {
    throw FileFault{"its zip archive is compressed or encrypted, which torch.save does not do",
                    "Give the file that torch.save wrote."};
  }
  file_.read_at(record.offset, to);
  const auto found = crc32_of(to);
  if (record.crc32 != 0 && found != record.crc32) {
    throw FileFault{text("expected ", record.bytes, " bytes of CRC-32 ", record.crc32, " at byte offset ",
                         record.offset, ", found ", found, " (they are damaged)")};
  }
}

std::string ZipArchive::read(const ZipRecord& record, std::uint64_t limit_bytes) const {
  if (record.bytes > limit_bytes) {
    throw FileFault{text("expected a record of at most ", limit_bytes, " bytes at byte offset ", record.offset,
                         ", found ", record.bytes)};
  }
  std::string content(static_cast<std::size_t>(record.bytes), '\0');
  read(record, std::as_writable_bytes(std::span{content}));
  return content;
}

}  // namespace libtrain::detail
