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

/// What one process did and when. Every text is there once, however many spans it belongs to.
struct Trace {
  struct Span {
    std::uint32_t lane = 0;  ///< as name and detail an index of `texts`
    std::uint32_t name = 0;
    std::uint32_t detail = 0;
    std::int64_t begin_ns = 0;  ///< on whatever clock the trace was put
    std::int64_t end_ns = 0;    ///< not before begin_ns
  };

  std::string process = {};  ///< "rank 3 (node7)"
  std::string note = {};     ///< what a reader should know of this process, or nothing
  std::vector<std::string> texts = {};
  std::vector<Span> spans = {};
  std::int64_t dropped = 0;  ///< spans for which there was no room
};

struct TraceBufferLimits {
  std::size_t spans = 1 << 20;
  /// Of all different lanes, names and details, with what it takes to keep them.
  std::size_t text_bytes = 16 << 20;
};

/// Keeps spans in memory: 32 bytes each, at about 0.1 microseconds; what exceeds the limits is counted and dropped, so
/// that a run which is longer than expected keeps its beginning. Any thread may add spans and take the trace.
class TraceBuffer : public TraceSink {
 public:
  explicit TraceBuffer(TraceBufferLimits limits = {});

  void span(std::string_view lane, std::string_view name, Clock::time_point begin, Clock::time_point end,
            std::string_view detail = {}) noexcept override;

  /// A copy of everything so far, in nanoseconds since the epoch of Clock, with `process` and `note` left empty.
  Trace trace() const;

 private:
  bool keep(std::string_view lane, std::string_view name, Clock::time_point begin, Clock::time_point end,
            std::string_view detail);
  std::optional<std::uint32_t> index_of(std::string_view text);

  const TraceBufferLimits limits_;
  mutable std::mutex mutex_;
  std::deque<Trace::Span> spans_;  // grows without moving what is there
  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, std::uint32_t> indices_;  // keys lie in texts_
  std::array<std::uint32_t, 64> guesses_{};                      // the last index, by where the text was
  std::size_t text_bytes_ = 0;
  std::int64_t dropped_ = 0;
};

namespace detail {

/// A trace as bytes, about 10 a span: numbers of variable length, times as differences from the span before.
std::string encode(const Trace& trace);

/// Throws CommunicationError for bytes that `encode` did not make.
Trace decode(std::string_view bytes);

}  // namespace detail

}  // namespace libtrain
