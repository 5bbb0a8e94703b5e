#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/checkpoint/tensor_info.hpp>

#include <tools/checkpoint/report.hpp>
#include <tools/checkpoint/tensor_reader.hpp>

namespace libtrain::checkpoint_tool {

// The files that a command reads and writes.

enum class Existing { refuse, replace };

/// A file to write: complete or absent, and an existing one is replaced only by a complete one.
struct OutputOptions {
  std::string path = {};
  Existing existing = Existing::refuse;
};

/// Throws UsageError if the path does not end in `ending` or exists, EnvironmentError if it cannot be written.
void require_usable(const OutputOptions& output, std::string_view ending);

/// Says what was written.
void report_output(const OutputOptions& output, std::size_t tensors, Report& report);

struct InputOptions {
  std::string path = {};                 ///< a file of weights, or a checkpoint
  std::optional<std::string> part = {};  ///< of the checkpoint (default: kModelPart)
  std::string prefix = {};               ///< as in LoadWeightsOptions
  std::vector<NameChange> rename = {};   ///< likewise
};

/// The tensors of a file, or of a part of a checkpoint, under other names or with another type. Of these, one tensor at
/// a time is in memory. Used by one thread.
class Input {
 public:
  /// Throws UsageError if no tensor is left, or two get one name, and as weights_path() and TensorReader.
  explicit Input(const InputOptions& options);

  TensorReader& reader() { return reader_; }

  /// Names after `prefix` and `rename`, with the positions of their tensors in the reader.
  const std::map<std::string, std::size_t>& names() const { return names_; }

  /// The elements of a tensor, as TensorReader::read(), or converted to the type of `as`, under whose name values that
  /// become infinite are counted.
  std::span<const std::byte> read(std::size_t position, const TensorInfo& as);

  /// Warns of values that were finite and are infinite after the conversions.
  void report_infinite(Report& report) const;

 private:
  struct Infinite {
    std::uint64_t count;
    ElementType type;
  };

  TensorReader reader_;
  std::map<std::string, std::size_t> names_;
  std::vector<std::byte> converted_;
  std::map<std::string, Infinite> infinite_;
};

}  // namespace libtrain::checkpoint_tool
