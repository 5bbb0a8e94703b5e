#pragma once

#include <ctime>
#include <iomanip>
#include <sstream>
#include <string>

namespace libtrain::detail {

/// "2026-01-31 23:59:59 UTC".
inline std::string utc_time(std::time_t time) {
  std::tm parts{};
  gmtime_r(&time, &parts);
  std::ostringstream words;
  words << std::put_time(&parts, "%Y-%m-%d %H:%M:%S UTC");
  return words.str();
}

}  // namespace libtrain::detail
