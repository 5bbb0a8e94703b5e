#include <libtrain/data/formats/tar.hpp>

#include <algorithm>
#include <span>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data {

namespace {

// An archive begins with a name: gzip's first bytes are none, but zlib's might be.
Compression compression_of_archive(const File& file) {
  const auto begin = detail::read_range(file, 0, std::min<std::uint64_t>(file.size(), 2));
  return compression_of(begin) == Compression::gzip ? Compression::gzip : Compression::none;
}

// Between two members that are read at once: their headers and some small members. From the page cache so much takes
// about as long as another system call.
constexpr std::uint64_t kLargestGap = std::uint64_t{16} << 10;

constexpr detail::ShardFormat kTar{.name = "tar", .compression = &compression_of_archive, .index = &index_tar};

}  // namespace

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

void TarFile::read(std::uint64_t member, std::string& data) const {
  require_member(member);
  data.resize(static_cast<std::size_t>(shard_.index.bytes(member)));
  shard_.file->read_at(shard_.index.offset(member), std::as_writable_bytes(std::span{data}));
}

void TarFile::read(std::uint64_t member, std::string& data, std::uint64_t other, std::string& other_data) const {
  const auto begin = std::min(offset(member), offset(other));
  const auto end = std::max(offset(member) + bytes(member), offset(other) + bytes(other));
  if (end - begin > bytes(member) + kLargestGap + bytes(other)) {
    read(member, data);
    read(other, other_data);
    return;
  }
  data.resize(static_cast<std::size_t>(end - begin));
  shard_.file->read_at(begin, std::as_writable_bytes(std::span{data}));
  other_data.assign(data, static_cast<std::size_t>(offset(other) - begin), static_cast<std::size_t>(bytes(other)));
  data.erase(0, static_cast<std::size_t>(offset(member) - begin));
  data.resize(static_cast<std::size_t>(bytes(member)));
}

std::string TarFile::describe(std::uint64_t member) const {
  return text("Tar file '", name(), "', member '", member_name(member), "' at byte offset ", offset(member));
}

}  // namespace libtrain::data
