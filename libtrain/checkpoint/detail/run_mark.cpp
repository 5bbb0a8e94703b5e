#include <libtrain/checkpoint/detail/run_mark.hpp>

#include <unistd.h>

#include <cstdint>
#include <ctime>

#include <nlohmann/json.hpp>

#include <libtrain/base/detail/machine.hpp>
#include <libtrain/base/detail/utc_time.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

std::string run_mark(const std::string& run_id) {
  using RunMark = nlohmann::ordered_json;
  const RunMark mark{{"run_id", run_id}, {"process", ::getpid()}, {"host", host_name()}, {"time", std::time(nullptr)}};
  return mark.dump(-1, ' ', false, RunMark::error_handler_t::replace) + '\n';
}

std::string run_of_mark(std::string_view mark) try {
  return nlohmann::json::parse(mark).at("run_id").get<std::string>();
} catch (const nlohmann::json::exception&) {
  return {};
}

std::string describe_run_mark(std::string_view mark) try {
  const auto run = nlohmann::json::parse(mark);
  const auto process = run.at("process").get<std::int64_t>();
  const auto host = run.at("host").get<std::string>();
  return text(process == ::getpid() && host == host_name() ? "This process" : "Another run", " (run ",
              run.at("run_id").get<std::string>(), ", process ", process, " on ", host, ", since ",
              utc_time(static_cast<std::time_t>(run.at("time").get<std::int64_t>())), ")");
} catch (const nlohmann::json::exception&) {
  return "Another run";  // it has not written its mark yet
}

}  // namespace libtrain::detail
