#include <bench/all_reduce_report.hpp>

#include <cstdio>

#include <bench/byte_sizes.hpp>
#include <libtrain/base/build_info.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/observe/detail/percentile.hpp>

namespace libtrain::bench {

namespace {

template <typename... Values>
std::string formatted(const char* format, Values... values) {
  char line[256];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

}  // namespace

double AllReduceResult::minimum_s() const {
  return detail::percentile(measurement.seconds, 0);
}

double AllReduceResult::median_s() const {
  return detail::percentile(measurement.seconds, 0.5);
}

double AllReduceResult::p99_s() const {
  return detail::percentile(measurement.seconds, 0.99);
}

double AllReduceResult::algbw_gb_s() const {
  return static_cast<double>(measured.bytes) / median_s() / 1e9;
}

double AllReduceResult::busbw_gb_s() const {
  return algbw_gb_s() * 2 * (ranks - 1) / ranks;
}

Record record_of(const AllReduceResult& result) {
  Record record{"all_reduce"};
  record.set("implementation", result.implementation)
      .set("bytes", result.measured.bytes)
      .set("count", result.measured.count())
      .set("dtype", to_string(result.measured.type))
      .set("op", to_string(result.measured.op))
      .set("ranks", result.ranks)
      .set("in_place", result.measured.placement == Placement::in_place)
      .set("memory", result.measured.memory == Memory::allocated ? "allocate" : "ordinary")
      .set("backend", result.backend)
      .set("iterations", result.measurement.seconds.size())
      .set("median_s", result.median_s())
      .set("min_s", result.minimum_s())
      .set("p99_s", result.p99_s())
      .set("algbw_gb_s", result.algbw_gb_s())
      .set("busbw_gb_s", result.busbw_gb_s())
      .set("wrong", result.measurement.wrong)
      .set("git_revision", build_info().git_revision);
  return record;
}

std::string table_head() {
  return formatted("%10s %12s %9s %8s  %-9s %11s %11s %11s %8s %8s %6s", "size", "count", "type", "op", "by",
                   "minimum us", "median us", "p99 us", "algbw", "busbw", "wrong");
}

std::string table_row(const AllReduceResult& result) {
  return formatted("%10s %12ld %9s %8s  %-9s %11.1f %11.1f %11.1f %8.2f %8.2f %6ld",
                   format_bytes(result.measured.bytes).c_str(), result.measured.count(),
                   std::string{to_string(result.measured.type)}.c_str(),
                   std::string{to_string(result.measured.op)}.c_str(), result.implementation.c_str(),
                   1e6 * result.minimum_s(), 1e6 * result.median_s(), 1e6 * result.p99_s(), result.algbw_gb_s(),
                   result.busbw_gb_s(), result.measurement.wrong);
}

std::string comparison(const std::vector<AllReduceResult>& results) {
  if (results.size() < 2) return {};
  std::vector<std::string> parts;
  for (auto other = results.begin() + 1; other != results.end(); ++other) {
    const double times = other->median_s() / results.front().median_s();
    parts.push_back(formatted("%.2f times %s", times, other->implementation.c_str()));
  }
  return text(results.front().implementation, ": ", join(parts, ", "), " (medians)");
}

}  // namespace libtrain::bench
