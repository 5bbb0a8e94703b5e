#include <libtrain/observe/trace_buffer.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <libtrain/base/error.hpp>

namespace libtrain {
namespace {

using testing::ElementsAre;
using testing::Le;
using testing::SizeIs;

TraceSink::Clock::time_point moment(std::int64_t nanoseconds) {
  return TraceSink::Clock::time_point{std::chrono::nanoseconds(nanoseconds)};
}

// "lane/name/detail 5..9".
std::vector<std::string> lines_of(const Trace& trace) {
  std::vector<std::string> lines;
  for (const auto& span : trace.spans) {
    lines.push_back(trace.texts.at(span.lane) + "/" + trace.texts.at(span.name) + "/" + trace.texts.at(span.detail) +
                    " " + std::to_string(span.begin_ns) + ".." + std::to_string(span.end_ns));
  }
  return lines;
}

TEST(TraceBuffer, KeepsSpansInTheOrderInWhichTheyCame) {
  TraceBuffer buffer;
  buffer.span("communication", "reduce", moment(70), moment(90), "bucket 3");
  buffer.span("compute", "forward", moment(5), moment(9));
  EXPECT_THAT(lines_of(buffer.trace()), ElementsAre("communication/reduce/bucket 3 70..90", "compute/forward/ 5..9"));
  EXPECT_EQ(buffer.trace().dropped, 0);
}

TEST(TraceBuffer, KeepsEqualTextsOnce) {
  TraceBuffer buffer;
  const std::vector<std::string> copies(10, std::string(1000, 'x'));
  for (const auto& copy : copies) buffer.span("lane", "lane", moment(0), moment(1), copy);
  const auto trace = buffer.trace();
  EXPECT_THAT(trace.spans, SizeIs(10));
  EXPECT_THAT(trace.texts, ElementsAre("lane", std::string(1000, 'x')));
}

TEST(TraceBuffer, TellsTextsApartThatFollowEachOtherInOnePlace) {
  TraceBuffer buffer;
  std::string place = "step 0";
  for (const char digit : {'0', '1', '0', '2'}) {
    place.back() = digit;
    buffer.span("lane", place, moment(0), moment(1));
  }
  EXPECT_THAT(lines_of(buffer.trace()),
              ElementsAre("lane/step 0/ 0..1", "lane/step 1/ 0..1", "lane/step 0/ 0..1", "lane/step 2/ 0..1"));
}

TEST(TraceBuffer, CountsAndDropsWhatExceedsItsLimit) {
  TraceBuffer buffer{{.spans = 2}};
  for (int i = 0; i < 5; ++i) buffer.span("lane", "name", moment(i), moment(i));
  const auto trace = buffer.trace();
  EXPECT_THAT(lines_of(trace), ElementsAre("lane/name/ 0..0", "lane/name/ 1..1"));
  EXPECT_EQ(trace.dropped, 3);
}

TEST(TraceBuffer, BoundsItsTextsToo) {
  TraceBuffer buffer{{.text_bytes = 2000}};
  const std::string long_text(100, 'x');
  for (int i = 0; i < 100; ++i) buffer.span("lane", "name", moment(0), moment(0), long_text + std::to_string(i));
  const auto kept = buffer.trace();
  std::size_t bytes = 0;
  for (const auto& text : kept.texts) bytes += text.size();
  EXPECT_THAT(bytes, Le(2000u));
  EXPECT_GT(kept.spans.size(), 1u);
  EXPECT_EQ(kept.dropped, 100 - static_cast<std::int64_t>(kept.spans.size()));
  // What has its texts already still finds room.
  buffer.span("lane", "name", moment(1), moment(1), long_text + "0");
  EXPECT_EQ(buffer.trace().spans.size(), kept.spans.size() + 1);
}

TEST(TraceBuffer, ASpanDoesNotEndBeforeItBegins) {
  TraceBuffer buffer;
  buffer.span("lane", "name", moment(7), moment(3));
  EXPECT_THAT(lines_of(buffer.trace()), ElementsAre("lane/name/ 7..7"));
}

TEST(TraceBuffer, TakesSpansOfManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kSpans = 1000;
  TraceBuffer buffer;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&buffer, thread] {
        const auto lane = std::to_string(thread);
        for (int i = 0; i < kSpans; ++i) buffer.span(lane, "name", moment(i), moment(i + 1));
      });
    }
  }
  const auto trace = buffer.trace();
  ASSERT_THAT(trace.spans, SizeIs(kThreads * kSpans));
  std::array<std::int64_t, kThreads> next{};
  for (const auto& span : trace.spans) {
    auto& expected = next.at(static_cast<std::size_t>(std::stoi(trace.texts.at(span.lane))));
    EXPECT_EQ(span.begin_ns, expected++);
  }
}

TEST(TraceBuffer, HearsOfTheLifeOfATraceSpan) {
  TraceBuffer buffer;
  const auto before = TraceSink::Clock::now();
  {
    const TraceSpan heard{&buffer, "compute", "forward"};
    const TraceSpan unheard{nullptr, "compute", "backward"};
  }
  const auto after = TraceSink::Clock::now();
  const auto trace = buffer.trace();
  ASSERT_THAT(trace.spans, SizeIs(1));
  EXPECT_EQ(trace.texts.at(trace.spans[0].name), "forward");
  EXPECT_LE(moment(trace.spans[0].begin_ns), moment(trace.spans[0].end_ns));
  EXPECT_GE(moment(trace.spans[0].begin_ns), before);
  EXPECT_LE(moment(trace.spans[0].end_ns), after);
}

Trace sample_trace() {
  using Limits = std::numeric_limits<std::int64_t>;
  return {.process = "rank 3 (node7)",
          .note = "",
          .texts = {"communication", "reduce", "", std::string{"zero \0 and \xff", 12}, std::string(300, 'y')},
          .spans = {{.lane = 0, .name = 1, .detail = 2, .begin_ns = 1'000'000'000'000, .end_ns = 1'000'000'000'250},
                    {.lane = 0, .name = 3, .detail = 4, .begin_ns = -5, .end_ns = 0},
                    {.lane = 0, .name = 1, .detail = 2, .begin_ns = Limits::min(), .end_ns = Limits::max()},
                    {.lane = 0, .name = 1, .detail = 2, .begin_ns = Limits::max(), .end_ns = Limits::max()}},
          .dropped = 12};
}

TEST(TraceEncoding, ReadsBackTheSame) {
  const auto trace = sample_trace();
  const auto read = detail::decode(detail::encode(trace));
  EXPECT_EQ(read.process, trace.process);
  EXPECT_EQ(read.note, trace.note);
  EXPECT_EQ(read.texts, trace.texts);
  EXPECT_EQ(read.dropped, trace.dropped);
  EXPECT_EQ(lines_of(read), lines_of(trace));
  EXPECT_THAT(detail::decode(detail::encode(Trace{})).spans, SizeIs(0));
}

TEST(TraceEncoding, IsCompact) {
  TraceBuffer buffer;
  constexpr int kSpans = 1000;
  for (int i = 0; i < kSpans; ++i) {
    buffer.span("lane", "name", moment(50'000LL * i), moment(50'000LL * i + 20'000), "detail");
  }
  EXPECT_LE(detail::encode(buffer.trace()).size(), 10u * kSpans);
}

TEST(TraceEncoding, RefusesDamagedBytes) {
  const auto bytes = detail::encode(sample_trace());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THROW(detail::decode(bytes.substr(0, length)), CommunicationError) << length;
  }
  EXPECT_THROW(detail::decode(bytes + "x"), CommunicationError);
  EXPECT_THROW(detail::decode(std::string(100, '\xff')), CommunicationError);
  const Trace without_texts{.spans = {{.begin_ns = 1, .end_ns = 2}}};
  EXPECT_THROW(detail::decode(detail::encode(without_texts)), CommunicationError);
}

}  // namespace
}  // namespace libtrain
