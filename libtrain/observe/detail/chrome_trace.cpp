#include <libtrain/observe/detail/chrome_trace.hpp>

#include <algorithm>
#include <cstdint>
#include <system_error>

#include <nlohmann/json.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

// Creates the folder of `path` and returns `path`.
const std::filesystem::path& in_its_folder(const std::filesystem::path& path) {
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  if (!error) return path;
  throw EnvironmentError(text("Cannot create the folder of the timeline '", path.string(), "': ", error.message(),
                              ". Choose another file."));
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Exact: a double would round.
std::string microseconds(std::int64_t nanoseconds) {
  const bool negative = nanoseconds < 0;
  const auto bits = static_cast<std::uint64_t>(nanoseconds);
  const auto magnitude = negative ? 0 - bits : bits;
  const auto decimals = std::to_string(1000 + magnitude % 1000).substr(1);
  return (negative ? "-" : "") + std::to_string(magnitude / 1000) + "." + decimals;
}

std::string labels_of(const Trace& trace) {
  if (trace.dropped == 0) return trace.note;
  return text(trace.note, trace.note.empty() ? "" : ", ", trace.dropped, " spans dropped");
}

}  // namespace

ChromeTraceFile::ChromeTraceFile(std::filesystem::path path) : file_(in_its_folder(path).string()) {
  file_.write(R"({"displayTimeUnit":"ms","traceEvents":[)");
}

void ChromeTraceFile::require_writable(const std::filesystem::path& path) {
  OutputFile::require_writable(in_its_folder(path).string());
}

void ChromeTraceFile::add(int rank, const Trace& trace) {
  describe_process(rank, trace);
  std::vector<std::string> texts;
  for (const auto& text : trace.texts) texts.push_back(quoted(text));
  std::vector<std::size_t> threads(texts.size(), 0);  // of the texts that are lanes
  const auto process = std::to_string(rank);
  for (const auto& span : trace.spans) {
    auto& thread = threads[span.lane];
    if (thread == 0) thread = thread_of(rank, trace.texts[span.lane]);
    auto event = R"({"ph":"X","pid":)" + process + R"(,"tid":)" + std::to_string(thread) + R"(,"ts":)" +
                 microseconds(span.begin_ns) + R"(,"dur":)" + microseconds(span.end_ns - span.begin_ns) +
                 R"(,"name":)" + texts[span.name];
    if (!trace.texts[span.detail].empty()) event += R"(,"args":{"detail":)" + texts[span.detail] + "}";
    add_event(event + "}");
  }
}

void ChromeTraceFile::describe_process(int rank, const Trace& trace) {
  // Thread 0 stands for the process itself.
  if (!named_threads_.emplace(rank, std::size_t{0}).second) return;
  const auto name = trace.process.empty() ? text("rank ", rank) : trace.process;
  add_metadata(rank, 0, "process_name", R"("name":)" + quoted(name));
  add_metadata(rank, 0, "process_sort_index", R"("sort_index":)" + std::to_string(rank));
  const auto labels = labels_of(trace);
  if (!labels.empty()) add_metadata(rank, 0, "process_labels", R"("labels":)" + quoted(labels));
}

std::size_t ChromeTraceFile::thread_of(int rank, const std::string& lane) {
  const auto place = static_cast<std::size_t>(std::find(lanes_.begin(), lanes_.end(), lane) - lanes_.begin());
  if (place == lanes_.size()) lanes_.push_back(lane);
  const auto thread = place + 1;
  if (named_threads_.emplace(rank, thread).second) {
    add_metadata(rank, thread, "thread_name", R"("name":)" + quoted(lane));
    add_metadata(rank, thread, "thread_sort_index", R"("sort_index":)" + std::to_string(thread));
  }
  return thread;
}

void ChromeTraceFile::add_metadata(int rank, std::size_t thread, const std::string& what,
                                   const std::string& arguments) {
  add_event(
      text(R"({"ph":"M","pid":)", rank, R"(,"tid":)", thread, R"(,"name":")", what, R"(","args":{)", arguments, "}}"));
}

void ChromeTraceFile::add_event(const std::string& json) {
  file_.write((has_events_ ? ",\n" : "\n") + json);
  has_events_ = true;
}

void ChromeTraceFile::finish() {
  file_.write("\n]}\n");
  file_.commit();
}

}  // namespace libtrain::detail
