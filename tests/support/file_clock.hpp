#pragma once

#include <filesystem>
#include <string>

#include <tests/support/temporary_folder.hpp>

namespace libtrain::test {

/// Returns when the clock of the file system, which ticks every few milliseconds only, shows a later time than that of
/// the file: what is written from now on is newer, and can be told from it.
inline void pass_time_of(const std::string& path) {
  const std::string probe = path + ".probe";
  do {
    write_file(probe, "");
  } while (std::filesystem::last_write_time(probe) <= std::filesystem::last_write_time(path));
  std::filesystem::remove(probe);
}

}  // namespace libtrain::test
