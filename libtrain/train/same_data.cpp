#include <libtrain/train/same_data.hpp>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <libtrain/base/text.hpp>
#include <libtrain/sync/agreement.hpp>

namespace libtrain {

namespace {

constexpr std::uint64_t kCompared = 1000;

// Staged copies lie in other folders on other nodes: class and file name say enough.
std::string place_of(const data::SampleOrigin& origin) {
  const std::filesystem::path path(origin.path);
  return text(path.parent_path().filename().string(), "/", path.filename().string(), " + ", origin.offset);
}

}  // namespace

void require_same_data(const data::ImageSource& images, Communicator& communicator) {
  if (communicator.world_size() == 1) return;
  std::vector<std::string> lines{text(images.size(), " images")};
  for (const auto& name : images.classes()) lines.push_back(text("class ", name));
  const std::uint64_t stride = std::max<std::uint64_t>(1, images.size() / kCompared);
  for (std::uint64_t i = 0; i < images.size(); i += stride) {
    lines.push_back(text("image ", i, ": ", place_of(images.origin(i))));
  }
  detail::require_agreement({.subject = "The data set",
                             .unit = "images",
                             .advice = "Give all ranks the same data, and start once they are complete."},
                            lines, communicator);
}

}  // namespace libtrain
