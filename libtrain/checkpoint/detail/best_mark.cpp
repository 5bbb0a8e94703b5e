#include <libtrain/checkpoint/detail/best_mark.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::detail {

namespace {

constexpr const char* kNewBestMarkName = "best.json.partial";
constexpr std::uint64_t kLongestBestMark = 100;
constexpr std::string_view kBestMarkBegin = "{\"step\": ";
constexpr std::string_view kBestMarkEnd = "}\n";

}  // namespace

std::optional<std::int64_t> read_best_mark(const Folder& root) {
  const auto content = read_small_file(root, kBestMarkName, kLongestBestMark);
  if (!content) return std::nullopt;
  std::string_view digits = *content;
  if (digits.starts_with(kBestMarkBegin) && digits.ends_with(kBestMarkEnd)) {
    digits.remove_prefix(kBestMarkBegin.size());
    digits.remove_suffix(kBestMarkEnd.size());
    if (const auto step = parse_decimal<std::int64_t>(digits, 0, INT64_MAX)) return step;
  }
  throw EnvironmentError(text("'", (root.path() / kBestMarkName).string(),
                              "' is damaged: it does not name a step. Remove it, and mark the best checkpoint again."));
}

void write_best_mark(const Folder& root, std::int64_t step) {
  const auto path = root.path() / kBestMarkName;
  // Truncates what a killed process has left.
  auto file = root.open_file(kNewBestMarkName, O_WRONLY | O_CREAT | O_TRUNC);
  if (!file.is_open()) throw_checkpoint_error("write the file", path, errno);
  const auto content = text(kBestMarkBegin, step, kBestMarkEnd);
  if (write_all(file.get(), content) < content.size()) throw_checkpoint_error("write to the file", path, errno);
  sync_and_close(std::move(file), path);
  root.rename(kNewBestMarkName, kBestMarkName);
  root.sync();
}

}  // namespace libtrain::detail
