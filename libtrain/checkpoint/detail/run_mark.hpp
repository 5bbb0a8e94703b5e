#pragma once

#include <string>
#include <string_view>

namespace libtrain::detail {

/// One line that names this process as the writer of a run's checkpoints.
std::string run_mark(const std::string& run_id);

/// The run of a mark; empty if the mark is empty or damaged.
std::string run_of_mark(std::string_view mark);

/// Whose mark this is, for messages: "Another run (run ..., process ... on ..., since ...)", or "This process (...)";
/// without the parentheses if the mark is empty or damaged.
std::string describe_run_mark(std::string_view mark);

}  // namespace libtrain::detail
