#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include <libtrain/data/formats/detail/file_buffer.hpp>
#include <libtrain/data/storage/file.hpp>

namespace libtrain::inspect {

/// A file whose rows are read one after the other: one read of the file serves many of them, which is what makes that
/// bearable in an object store. Not to be used after an error.
class BufferedFile final : public data::File {
 public:
  explicit BufferedFile(std::unique_ptr<const data::File> file);

  const std::string& name() const override { return file_->name(); }
  std::uint64_t size() const override { return file_->size(); }
  void read_at(std::uint64_t offset, std::span<std::byte> to) const override;

 private:
  std::unique_ptr<const data::File> file_;
  mutable std::mutex mutex_;
  mutable data::detail::ReadWindow window_;
};

}  // namespace libtrain::inspect
