#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace libtrain::test {

/// A folder of its own for a test, removed with all that is in it.
class TemporaryFolder {
 public:
  /// Its name begins with `prefix`.
  explicit TemporaryFolder(const std::string& prefix = "libtrain_") {
    std::string name = (std::filesystem::temp_directory_path() / (prefix + "XXXXXX")).string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot create " + name);
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;  // owns the folder
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

  const std::filesystem::path& path() const { return path_; }

  /// How many files and folders lie in it, not counting those in folders.
  int count() const {
    int entries = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) entries += entry.exists() ? 1 : 0;
    return entries;
  }

 private:
  std::filesystem::path path_;
};

/// All bytes of a file; throws where it cannot be read, so that a missing file is not taken for an empty one.
inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

/// Makes a file, or replaces it; throws where that fails.
inline void write_file(const std::string& path, std::string_view content) {
  std::ofstream file(path, std::ios::binary);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace libtrain::test
