#include <libtrain/data/formats/inflate.hpp>

#define ZLIB_CONST
#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/detail/file_buffer.hpp>

namespace libtrain::data {

namespace {

// Parameters of zlib: the largest window, and 16 more for gzip's header.
constexpr int kZlibWindow = 15;
constexpr int kGzipWindow = 15 + 16;

// The content is stored in pieces of this size, so that nothing is copied when it grows.
constexpr std::size_t kPiece = std::size_t{1} << 20;

constexpr std::uint64_t kCompressedRead = std::uint64_t{64} << 10;

struct Step {
  int status = Z_OK;
  std::size_t read = 0;
  std::size_t written = 0;
};

class Inflater {
 public:
  explicit Inflater(Compression compression) {
    const int window = compression == Compression::gzip ? kGzipWindow : kZlibWindow;
    if (inflateInit2(&stream_, window) != Z_OK) throw std::bad_alloc();
  }
  Inflater(const Inflater&) = delete;  // zlib's state points back to the stream
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream_); }

  Step advance(std::string_view from, std::span<char> to) {
    stream_.next_in = reinterpret_cast<const Bytef*>(from.data());
    stream_.avail_in = static_cast<uInt>(from.size());
    stream_.next_out = reinterpret_cast<Bytef*>(to.data());
    stream_.avail_out = static_cast<uInt>(to.size());
    const int status = ::inflate(&stream_, Z_NO_FLUSH);
    return {.status = status, .read = from.size() - stream_.avail_in, .written = to.size() - stream_.avail_out};
  }

  void begin_next_member() { inflateReset(&stream_); }

  const char* message() const { return stream_.msg != nullptr ? stream_.msg : "a preset dictionary"; }

 private:
  z_stream stream_{};
};

using Pieces = std::vector<std::unique_ptr<char[]>>;

class InflatedFile final : public File {
 public:
  InflatedFile(std::string name, Pieces pieces, std::uint64_t size)
      : name_(std::move(name)), pieces_(std::move(pieces)), size_(size) {}

  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return size_; }

  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    detail::require_range(*this, offset, to.size());
    while (!to.empty()) {
      const auto begin = static_cast<std::size_t>(offset % kPiece);
      const auto count = std::min(to.size(), kPiece - begin);
      std::memcpy(to.data(), pieces_[static_cast<std::size_t>(offset / kPiece)].get() + begin, count);
      to = to.subspan(count);
      offset += count;
    }
  }

 private:
  std::string name_;
  Pieces pieces_;
  std::uint64_t size_;
};

class Job {
 public:
  Job(const File& file, Compression compression, std::uint64_t limit_bytes)
      : file_(file), window_(file), compression_(compression), limit_(limit_bytes), inflater_(compression) {}

  std::unique_ptr<const File> run() {
    while (true) {
      if (room_.empty()) grow();
      const Step step = inflater_.advance(compressed(kCompressedRead), room_);
      consumed_ += step.read;
      produced_ += step.written;
      room_ = room_.subspan(step.written);
      if (produced_ > limit_) fail(text("expected at most ", limit_, " bytes of content, found more"));
      if (step.status == Z_STREAM_END) {
        if (!begin_next_member()) break;
      } else if (step.status != Z_OK) {
        refuse(step.status);
      }
    }
    trim();
    return std::make_unique<InflatedFile>(file_.name(), std::move(pieces_), produced_);
  }

 private:
  // At most `count` bytes from the current position on.
  std::string_view compressed(std::uint64_t count) {
    return window_.at(consumed_, static_cast<std::size_t>(std::min(count, file_.size() - consumed_)));
  }

  void grow() {
    pieces_.push_back(std::make_unique_for_overwrite<char[]>(kPiece));
    room_ = {pieces_.back().get(), kPiece};
  }

  // Shrinks the last piece, or each of many small shards would keep a large one.
  void trim() {
    const std::size_t used = kPiece - room_.size();
    auto last = std::make_unique_for_overwrite<char[]>(used);
    std::memcpy(last.get(), pieces_.back().get(), used);
    pieces_.back() = std::move(last);
  }

  bool begin_next_member() {
    if (compression_ == Compression::gzip && compression_of(compressed(2)) == Compression::gzip) {
      inflater_.begin_next_member();
      return true;
    }
    const std::uint64_t end = consumed_;
    for (; consumed_ < file_.size(); consumed_ += compressed(kCompressedRead).size()) {
      if (compressed(kCompressedRead).find_first_not_of('\0') == std::string_view::npos) continue;
      consumed_ = end;
      fail(text("expected the end of the file, found ", file_.size() - end, " more bytes"));
    }
    return false;
  }

  [[noreturn]] void refuse(int status) const {
    if (status == Z_MEM_ERROR) throw std::bad_alloc();
    if (status == Z_BUF_ERROR) fail("expected more compressed bytes, found the end of the file (it is truncated)");
    fail(text("expected valid compressed bytes, found: ", inflater_.message()));
  }

  [[noreturn]] void fail(const std::string& expected_and_found) const {
    throw EnvironmentError(text(compression_ == Compression::gzip ? "gzip" : "zlib", " file '", file_.name(),
                                "', byte offset ", consumed_, ": ", expected_and_found, "."));
  }

  const File& file_;
  detail::ReadWindow window_;
  Compression compression_;
  std::uint64_t limit_;
  Inflater inflater_;
  Pieces pieces_;
  std::span<char> room_;  // the unused part of the last piece
  std::uint64_t consumed_ = 0;
  std::uint64_t produced_ = 0;
};

}  // namespace

Compression compression_of(std::string_view first_bytes) {
  if (first_bytes.size() < 2) return Compression::none;
  const unsigned first = static_cast<unsigned char>(first_bytes[0]);
  const unsigned second = static_cast<unsigned char>(first_bytes[1]);
  if (first == 0x1f && second == 0x8b) return Compression::gzip;
  // RFC 1950: method 8 with a window of at most 32 KiB, and a check that makes the two bytes a multiple of 31.
  if ((first & 0x0f) == 8 && first >> 4 <= 7 && (256 * first + second) % 31 == 0) return Compression::zlib;
  return Compression::none;
}

std::unique_ptr<const File> inflate_file(const File& file, Compression compression, std::uint64_t limit_bytes) {
  if (compression == Compression::none) {
    throw UsageError(text("'", file.name(), "' cannot be inflated with Compression::none. Choose zlib or gzip."));
  }
  return Job(file, compression, limit_bytes).run();
}

}  // namespace libtrain::data
