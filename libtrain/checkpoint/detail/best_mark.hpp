#pragma once

#include <cstdint>
#include <optional>

#include <libtrain/checkpoint/detail/folder.hpp>

namespace libtrain::detail {

/// The file best.json of a run's checkpoints: the step of the one that is marked as the best.
inline constexpr const char* kBestMarkName = "best.json";

/// std::nullopt if no checkpoint is marked. Throws EnvironmentError if the file cannot be read or is damaged.
std::optional<std::int64_t> read_best_mark(const Folder& root);

/// Replaces the file, which is complete or absent. Throws EnvironmentError. One process at a time.
void write_best_mark(const Folder& root, std::int64_t step);

}  // namespace libtrain::detail
