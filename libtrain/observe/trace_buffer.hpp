#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <libtrain/base/trace.hpp>

namespace libtrain {

/// The spans of one process. Each text is stored once.
struct Trace {
  struct Span {
    std::uint32_t lane = 0;  ///< an index of `texts`, as are name and detail
    std::uint32_t name = 0;
    std::uint32_t detail = 0;
    std::int64_t begin_ns = 0;  ///< on the clock of the trace
    std::int64_t end_ns = 0;    ///< not before begin_ns
  };

  std::string process = {};  ///< "rank 3 (node7)"
  std::string note = {};     ///< a note on this process for the reader, or empty
  std::vector<std::string> texts = {};
  std::vector<Span> spans = {};
  std::int64_t dropped = 0;  ///< number of spans that did not fit
};

struct TraceBufferLimits {
  std::size_t spans = 1 << 20;
  /// Memory for all different lanes, names and details, including the overhead.
  std::size_t text_bytes = 16 << 20;
};

/// Keeps spans in memory: 32 bytes and about 0.1 microseconds each. Spans beyond the limits are counted and dropped, so
/// that a run which is longer than expected keeps its beginning. Any thread may add spans and read the trace.
class TraceBuffer : public TraceSink {
 public:
  explicit TraceBuffer(TraceBufferLimits limits = {});

  void span(std::string_view lane, std::string_view name, Clock::time_point begin, Clock::time_point end,
            std::string_view detail = {}) noexcept override;

  /// A copy of all spans so far, in nanoseconds since the epoch of Clock; `process` and `note` are empty.
  Trace trace() const;

 private:
  bool keep(std::string_view lane, std::string_view name, Clock::time_point begin, Clock::time_point end,
            std::string_view detail);
  std::optional<std::uint32_t> index_of(std::string_view text);

  const TraceBufferLimits limits_;
  mutable std::mutex mutex_;
  std::deque<Trace::Span> spans_;  // grows without moving its elements
  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, std::uint32_t> indices_;  // keys point into texts_
  std::array<std::uint32_t, 64> guesses_{};                      // the last index, by the address of the text
  std::size_t text_bytes_ = 0;
  std::int64_t dropped_ = 0;
};

namespace detail {

/// A trace as bytes, about 10 per span: numbers of variable length, times as differences from the previous span.
std::string encode(const Trace& trace);

/// Throws CommunicationError for bytes that `encode` did not make.
Trace decode(std::string_view bytes);

}  // namespace detail

}  // namespace libtrain
