#include <libtrain/data/formats/inflate.hpp>

#define ZLIB_CONST
#include <zlib.h>

#include <algorithm>
#include <new>
#include <span>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/file_buffer.hpp>

namespace libtrain::data {

namespace {

// zlib's parameter: the largest window, and 16 more for gzip's header.
constexpr int kZlibWindow = 15;
constexpr int kGzipWindow = 15 + 16;

// zlib counts in 32 bits.
constexpr std::size_t kMostPerCall = std::size_t{1} << 30;

constexpr std::size_t kSmallestBuffer = std::size_t{16} << 10;

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
    const auto input = static_cast<uInt>(std::min(from.size(), kMostPerCall));
    const auto room = static_cast<uInt>(std::min(to.size(), kMostPerCall));
    stream_.next_in = reinterpret_cast<const Bytef*>(from.data());
    stream_.avail_in = input;
    stream_.next_out = reinterpret_cast<Bytef*>(to.data());
    stream_.avail_out = room;
    const int status = ::inflate(&stream_, Z_NO_FLUSH);
    return {.status = status, .read = input - stream_.avail_in, .written = room - stream_.avail_out};
  }

  void begin_next_member() { inflateReset(&stream_); }

  const char* message() const { return stream_.msg != nullptr ? stream_.msg : "a preset dictionary"; }

 private:
  z_stream stream_{};
};

class Job {
 public:
  Job(std::string_view compressed, Compression compression, std::uint64_t limit_bytes, std::string_view name)
      : compressed_(compressed), compression_(compression), name_(name), inflater_(compression) {
    limit_ = static_cast<std::size_t>(std::min<std::uint64_t>(limit_bytes, content_.max_size() - 1));
  }

  std::string run() {
    while (true) {
      if (produced_ == content_.size()) grow();
      const Step step = inflater_.advance(compressed_.substr(consumed_), std::span{content_}.subspan(produced_));
      consumed_ += step.read;
      produced_ += step.written;
      if (produced_ > limit_) fail(text("expected at most ", limit_, " bytes of content, found more"));
      if (step.status == Z_STREAM_END) {
        if (!begin_next_member()) break;
      } else if (step.status != Z_OK) {
        refuse(step.status);
      }
    }
    content_.resize(produced_);
    return std::move(content_);
  }

 private:
  // One byte more than the limit tells content that is too long from content that just fits.
  void grow() {
    const std::size_t wanted = std::max({kSmallestBuffer, 2 * compressed_.size(), 2 * content_.size()});
    content_.resize(std::min(wanted, limit_ + 1));
  }

  bool begin_next_member() {
    const std::string_view rest = compressed_.substr(consumed_);
    if (rest.find_first_not_of('\0') == std::string_view::npos) return false;
    if (compression_ != Compression::gzip || compression_of(rest) != Compression::gzip) {
      fail(text("expected the end of the file, found ", rest.size(), " more bytes"));
    }
    inflater_.begin_next_member();
    return true;
  }

  [[noreturn]] void refuse(int status) const {
    if (status == Z_MEM_ERROR) throw std::bad_alloc();
    if (status == Z_BUF_ERROR) fail("expected more compressed bytes, found the end of the file (it is truncated)");
    fail(text("expected valid compressed bytes, found: ", inflater_.message()));
  }

  [[noreturn]] void fail(const std::string& expected_and_found) const {
    throw EnvironmentError(text(compression_ == Compression::gzip ? "gzip" : "zlib", " file '", name_,
                                "', byte offset ", consumed_, ": ", expected_and_found, "."));
  }

  std::string_view compressed_;
  Compression compression_;
  std::string_view name_;
  Inflater inflater_;
  std::string content_;
  std::size_t limit_ = 0;
  std::size_t consumed_ = 0;
  std::size_t produced_ = 0;
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

std::string inflate_bytes(std::string_view compressed, Compression compression, std::uint64_t limit_bytes,
                          std::string_view name) {
  if (compression == Compression::none) {
    throw UsageError(text("'", name, "' is not compressed, so that it cannot be inflated; choose zlib or gzip."));
  }
  return Job(compressed, compression, limit_bytes, name).run();
}

std::unique_ptr<const File> inflate_file(std::unique_ptr<const File> file, Compression compression,
                                         std::uint64_t limit_bytes) {
  return file_in_memory(file->name(),
                        inflate_bytes(read_all(*file, limit_bytes), compression, limit_bytes, file->name()));
}

}  // namespace libtrain::data
