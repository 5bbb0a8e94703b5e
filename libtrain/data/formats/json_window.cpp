#include <libtrain/data/formats/json_window.hpp>

#include <algorithm>
#include <cstring>
#include <span>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/formats/json_fault.hpp>
#include <libtrain/data/formats/json_space.hpp>

namespace libtrain::data::detail {

namespace {

constexpr std::size_t kSmallestRoom = 16;
// simdjson's limit is 4 GiB; no object of an annotation file is anywhere near.
constexpr std::size_t kLargestRoom = std::size_t{1} << 30;
constexpr std::uint64_t kExcerptBytes = 32;

}  // namespace

JsonWindow::JsonWindow(const File& file, std::size_t bytes)
    : file_(file),
      size_(file.size()),
      room_(std::min<std::uint64_t>(std::clamp(bytes, kSmallestRoom, kLargestRoom), size_)),
      buffer_(1 + room_ + 1) {
  load(0);
}

void JsonWindow::load(std::uint64_t offset) {
  const std::size_t length = std::min<std::uint64_t>(room_, size_ - offset);
  if (length > 0) file_.read_at(offset, std::as_writable_bytes(std::span{data(), length}));
  std::memset(data() + length, 0, PaddedBuffer::kPadding);
  begin_ = offset;
  length_ = length;
}

void JsonWindow::grow() {
  if (room_ >= kLargestRoom) {
    fail(begin_, libtrain::text("an object of at most ", kLargestRoom, " bytes"));
  }
  room_ = std::min<std::uint64_t>(2 * room_, size_);
  buffer_ = PaddedBuffer{1 + room_ + 1};
  load(begin_);
}

std::uint64_t JsonWindow::skip_space(std::uint64_t offset) {
  while (offset < size_ && is_json_space(at(offset))) ++offset;
  return offset;
}

void JsonWindow::fail(std::uint64_t offset, const std::string& expected) {
  offset = std::min(offset, size_);
  const bool inside = offset >= begin_ && offset + std::min(kExcerptBytes, size_ - offset) <= begin_ + length_;
  if (!inside) load(offset);
  const std::string found = json_excerpt(text().substr(offset - begin_, kExcerptBytes), "the end of the file");
  throw EnvironmentError(libtrain::text("JSON file '", file_.name(), "', byte offset ", offset, ": expected ", expected,
                                        ", found ", found, "."));
}

JsonWindow::Bracketed::Bracketed(JsonWindow& window, std::size_t length)
    : window_(window), length_(length), replaced_{window.data()[length], window.data()[length + 1]} {
  window_.buffer_.data()[0] = '[';
  window_.data()[length] = ']';
  // simdjson's on-demand parser looks at the byte behind the text where brackets do not match.
  window_.data()[length + 1] = '\0';
}

JsonWindow::Bracketed::~Bracketed() {
  window_.data()[length_] = replaced_[0];
  window_.data()[length_ + 1] = replaced_[1];
}

}  // namespace libtrain::data::detail
