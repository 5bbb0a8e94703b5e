#pragma once

#include <cctype>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/data/storage/open_storage.hpp>
#include <libtrain/data/storage/storage.hpp>

/// The image files that a command line names, for programs that look at images.

struct ImageFile {
  std::string path = {};  ///< a URI if it is in a store
  std::function<std::unique_ptr<const libtrain::data::File>()> open = {};
};

inline constexpr std::uint64_t kLargestImageFile = std::uint64_t{1} << 30;

inline bool is_image(const std::string& path) {
  auto extension = std::filesystem::path{path}.extension().string();
  for (auto& letter : extension) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

/// Adds a file, or all image files below a folder; a URI is one of a file if it ends like an image's name. Throws
/// EnvironmentError for a folder without images.
inline void find_images(const std::string& location, std::vector<ImageFile>& images) {
  const bool is_uri = location.find("://") != std::string::npos;
  if (is_uri ? is_image(location.substr(0, location.find('?'))) : !std::filesystem::is_directory(location)) {
    const std::string scheme = location.starts_with("file://") ? "file://" : "";
    images.push_back(
        {.path = location.substr(scheme.size()), .open = [location] { return libtrain::data::open_file(location); }});
    return;
  }
  const auto storage = libtrain::data::open_storage(location);
  const auto others = images.size();
  for (const auto& file : storage->list("")) {
    if (!is_image(file.path)) continue;
    images.push_back({.path = storage->name() + "/" + file.path,
                      .open = [storage, path = file.path] { return storage->open(path); }});
  }
  if (images.size() > others) return;
  throw libtrain::EnvironmentError("There is no .jpg, .jpeg or .png file in '" + storage->name() +
                                   "'. Check the path.");
}
