#include <libtrain/observe/trace_buffer.hpp>

#include <algorithm>
#include <chrono>
#include <new>

#include <libtrain/base/error.hpp>

namespace libtrain {

namespace {

// The memory of a short text besides its characters: the string, its table entry, and the allocations of both.
constexpr std::size_t kTextOverhead = 96;

std::int64_t nanoseconds_of(TraceSink::Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

}  // namespace

TraceBuffer::TraceBuffer(TraceBufferLimits limits) : limits_(limits) {}

void TraceBuffer::span(std::string_view lane, std::string_view name, Clock::time_point begin, Clock::time_point end,
                       std::string_view detail) noexcept {
  const std::lock_guard lock{mutex_};
  try {
    if (keep(lane, name, begin, end, detail)) return;
  } catch (const std::bad_alloc&) {
    // Tracing must not end a run.
  }
  ++dropped_;
}

bool TraceBuffer::keep(std::string_view lane, std::string_view name, Clock::time_point begin, Clock::time_point end,
                       std::string_view detail) {
  if (spans_.size() >= limits_.spans) return false;
  const auto lane_index = index_of(lane);
  const auto name_index = index_of(name);
  const auto detail_index = index_of(detail);
  if (!lane_index || !name_index || !detail_index) return false;
  spans_.push_back({.lane = *lane_index,
                    .name = *name_index,
                    .detail = *detail_index,
                    .begin_ns = nanoseconds_of(begin),
                    .end_ns = nanoseconds_of(std::max(begin, end))});
  return true;
}

std::optional<std::uint32_t> TraceBuffer::index_of(std::string_view text) {
  // The same text usually has the same address, and comparing long texts is several times cheaper than hashing them.
  auto& guess = guesses_[(reinterpret_cast<std::uintptr_t>(text.data()) >> 3) % guesses_.size()];
  if (guess < texts_.size() && texts_[guess] == text) return guess;
  if (const auto found = indices_.find(text); found != indices_.end()) return guess = found->second;
  const auto cost = text.size() + kTextOverhead;
  if (cost > limits_.text_bytes - text_bytes_) return std::nullopt;
  const auto index = static_cast<std::uint32_t>(texts_.size());
  indices_.emplace(texts_.emplace_back(text), index);
  text_bytes_ += cost;
  return guess = index;
}

Trace TraceBuffer::trace() const {
  const std::lock_guard lock{mutex_};
  return {.texts = {texts_.begin(), texts_.end()}, .spans = {spans_.begin(), spans_.end()}, .dropped = dropped_};
}

namespace detail {

namespace {

// Seven bits per byte, the lowest first; all bytes except the last have the upper bit set.
void put(std::string& bytes, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
}

// Maps numbers of small magnitude to small unsigned numbers.
void put_signed(std::string& bytes, std::int64_t value) {
  put(bytes, (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63));
}

void put_text(std::string& bytes, std::string_view text) {
  put(bytes, text.size());
  bytes.append(text);
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1).front());
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    refuse();
  }

  std::int64_t signed_number() {
    const auto value = number();
    return static_cast<std::int64_t>((value >> 1) ^ (0 - (value & 1)));
  }

  std::string text() { return std::string{take(number())}; }

  // The number of entries that follow; each takes at least one byte.
  std::size_t count() {
    const auto value = number();
    if (value > rest_.size()) refuse();
    return value;
  }

  std::uint32_t index(std::size_t size) {
    const auto value = number();
    if (value >= size) refuse();
    return static_cast<std::uint32_t>(value);
  }

  void require_end() const {
    if (!rest_.empty()) refuse();
  }

 private:
  std::string_view take(std::size_t bytes) {
    if (bytes > rest_.size()) refuse();
    const auto taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }

  [[noreturn]] static void refuse() {
    throw CommunicationError("The trace of a rank could not be decoded. Run the same build of libtrain on every rank.");
  }

  std::string_view rest_;
};

// Unsigned arithmetic: times that a rank sent may overflow.
std::int64_t difference(std::int64_t later, std::int64_t earlier) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(later) - static_cast<std::uint64_t>(earlier));
}

std::int64_t sum(std::int64_t time, std::int64_t more) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(time) + static_cast<std::uint64_t>(more));
}

}  // namespace

std::string encode(const Trace& trace) {
  std::string bytes;
  put_text(bytes, trace.process);
  put_text(bytes, trace.note);
  put_signed(bytes, trace.dropped);
  put(bytes, trace.texts.size());
  for (const auto& text : trace.texts) put_text(bytes, text);
  put(bytes, trace.spans.size());
  std::int64_t previous_ns = 0;
  for (const auto& span : trace.spans) {
    put(bytes, span.lane);
    put(bytes, span.name);
    put(bytes, span.detail);
    put_signed(bytes, difference(span.begin_ns, previous_ns));
    put_signed(bytes, difference(span.end_ns, span.begin_ns));
    previous_ns = span.begin_ns;
  }
  return bytes;
}

Trace decode(std::string_view bytes) {
  Reader reader{bytes};
  Trace trace;
  trace.process = reader.text();
  trace.note = reader.text();
  trace.dropped = reader.signed_number();
  trace.texts.resize(reader.count());
  for (auto& text : trace.texts) text = reader.text();
  trace.spans.resize(reader.count());
  std::int64_t previous_ns = 0;
  for (auto& span : trace.spans) {
    span.lane = reader.index(trace.texts.size());
    span.name = reader.index(trace.texts.size());
    span.detail = reader.index(trace.texts.size());
    span.begin_ns = sum(previous_ns, reader.signed_number());
    span.end_ns = sum(span.begin_ns, reader.signed_number());
    previous_ns = span.begin_ns;
  }
  reader.require_end();
  return trace;
}

}  // namespace detail

}  // namespace libtrain
