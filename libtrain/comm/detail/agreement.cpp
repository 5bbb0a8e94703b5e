#include <libtrain/comm/detail/agreement.hpp>

#include <algorithm>
#include <functional>
#include <sstream>

#include <c10/util/Exception.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/device/gpu_failure.hpp>
#include <libtrain/comm/host_transport.hpp>

namespace libtrain::detail {

namespace {

// A failure as it is sent to the other ranks: the digit of its exit code, and its text.
std::string message(ExitCode code, const std::string& what) {
  return text(static_cast<int>(code), what);
}

std::string message_of(const std::exception_ptr& failure) {
  if (failure == nullptr) return {};
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return message(error.exit_code(), error.what());
  } catch (const c10::Error& error) {
    if (const auto gpu = gpu_failure_of(error)) return message(ExitCode::environment, gpu->message);
    return message(ExitCode::usage, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return message(ExitCode::environment, error.what());
  } catch (...) {
    return message(ExitCode::environment, "unknown error");
  }
}

[[noreturn]] void throw_message(const std::string& message, const std::string& what) {
  switch (static_cast<ExitCode>(message.front() - '0')) {
    case ExitCode::usage:
      throw UsageError(what, ErrorScope::all_ranks);
    case ExitCode::communication:
      throw CommunicationError(what, ErrorScope::all_ranks);
    default:
      throw EnvironmentError(what, ErrorScope::all_ranks);
  }
}

std::vector<std::string> lines_of(const std::string& joined) {
  std::vector<std::string> lines;
  std::istringstream stream{joined};
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Describes the first difference between rank 0's lines and those of the other ranks.
std::string describe_difference(const Agreement& agreement, const std::vector<std::vector<std::string>>& all) {
  const auto line_of = [&](std::size_t rank, std::size_t index) {
    const auto& lines = all[rank];
    return index < lines.size() ? lines[index] : text("nothing (only ", lines.size(), " ", agreement.unit, ")");
  };
  const auto longest = std::ranges::max(all, {}, &std::vector<std::string>::size).size();
  for (std::size_t index = 0; index < longest; ++index) {
    const auto expected = line_of(0, index);
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      const auto found = line_of(rank, index);
      if (found == expected) continue;
      std::vector<int> ranks;
      for (std::size_t other = rank; other < all.size(); ++other) {
        if (line_of(other, index) == found) ranks.push_back(static_cast<int>(other));
      }
      return text(agreement.subject, " differs between ranks: rank 0 has ", expected, ", but ", ranks_in_words(ranks),
                  ranks.size() == 1 ? " has " : " have ", found, ". ", agreement.advice);
    }
  }
  return text(agreement.subject, " differs between ranks. ", agreement.advice);
}

}  // namespace

void throw_together(Communicator& communicator, std::string_view step, const std::exception_ptr& failure,
                    const CallOptions& options) {
  const auto messages = communicator.all_gather_bytes(message_of(failure), options);
  const auto first = std::ranges::find_if(messages, [](const auto& message) { return !message.empty(); });
  if (first == messages.end()) return;
  const auto what = first->substr(1);
  throw_message(*first,
                all_equal(messages) ? what : text(step, " failed on rank ", first - messages.begin(), ": ", what));
}

void require_agreement(const Agreement& agreement, const std::vector<std::string>& lines, Communicator& communicator) {
  const auto mine = join(lines, "\n");
  // Thousands of ranks may have thousands of lines each: they exchange digests, and all lines only if these differ.
  if (all_equal(communicator.all_gather_bytes(std::to_string(std::hash<std::string>{}(mine))))) return;
  std::vector<std::vector<std::string>> all;
  for (const auto& given : communicator.all_gather_bytes(mine)) all.push_back(lines_of(given));
  throw UsageError(describe_difference(agreement, all), ErrorScope::all_ranks);
}

}  // namespace libtrain::detail
