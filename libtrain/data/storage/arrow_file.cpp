#include <libtrain/data/storage/arrow_file.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include <arrow/filesystem/filesystem.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <arrow/util/key_value_metadata.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

namespace {

using Clock = std::chrono::steady_clock;

// What is read again after a failure; large enough for a request to cost nothing beside it.
constexpr std::size_t kPieceBytes = std::size_t{32} << 20;

// The last byte of a piece before it is read, and still where less came; any but those on which files often end.
constexpr std::byte kUntouched{0xa7};

struct OpenObject {
  std::shared_ptr<arrow::io::RandomAccessFile> file;
  std::int64_t size = 0;
  std::string version;
};

// What changes whenever the object does, as far as the store tells.
std::string version_of(const arrow::KeyValueMetadata* metadata, std::int64_t size) {
  if (metadata != nullptr) {
    for (const std::string_view key : {"ETag", "generation", "Last-Modified"}) {
      const auto value = metadata->Get(key);
      if (value.ok()) return text(key, ' ', *value, ", ", size, " bytes");
    }
  }
  return text(size, " bytes");
}

OpenObject open_object(const ArrowConnection& connection, const std::string& path, const std::string& subject,
                       RequestPhase phase) {
  OpenObject object;
  connection.call(subject, phase, [&]() -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(object.file, connection.file_system().OpenInputFile(path));
    ARROW_ASSIGN_OR_RAISE(object.size, object.file->GetSize());
    ARROW_ASSIGN_OR_RAISE(const auto metadata, object.file->ReadMetadata());
    object.version = version_of(metadata.get(), object.size);
    return arrow::Status::OK();
  });
  return object;
}

class ArrowFile final : public File {
 public:
  ArrowFile(std::shared_ptr<const ArrowConnection> connection, std::string path, std::string name)
      : connection_(std::move(connection)), path_(std::move(path)), name_(std::move(name)), checked_(Clock::now()) {
    const auto subject = text("File '", name_, "'");
    object_ = open_object(*connection_, path_, subject, RequestPhase::opening);
    // On GCS this starts a stream that every later read asks for, without a lock.
    connection_->call(subject, RequestPhase::opening, [&] {
      if (!object_.file->closed()) return arrow::Status::OK();
      throw RequestError(FailureKind::transient, text(subject, ": the store opens no stream of it."));
    });
  }

  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return static_cast<std::uint64_t>(object_.size); }

  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    require_range(*this, offset, to.size());
    while (!to.empty()) {
      const auto piece = to.first(std::min(to.size(), kPieceBytes));
      read_piece(offset, piece);
      offset += piece.size();
      to = to.subspan(piece.size());
    }
    check_unchanged(offset);
  }

 private:
  std::string subject(std::uint64_t offset) const { return text("File '", name_, "', byte offset ", offset); }

  void read_piece(std::uint64_t offset, std::span<std::byte> piece) const {
    std::int64_t count = 0;
    try {
      connection_->call(subject(offset), RequestPhase::reading, [&]() -> arrow::Status {
        piece.back() = kUntouched;
        ARROW_ASSIGN_OR_RAISE(
            count, object_.file->ReadAt(static_cast<std::int64_t>(offset), static_cast<std::int64_t>(piece.size()),
                                        static_cast<void*>(piece.data())));
        return arrow::Status::OK();
      });
    } catch (const RequestError& failure) {
      // GCS is asked for the generation that was opened, and has it no more once the file was written again.
      if (failure.kind() == FailureKind::missing) require_same_version(offset);
      throw;
    }
    // Of S3 Arrow counts what it asked for, not what came. The byte may be the file's own, too.
    if (piece.back() == kUntouched) require_same_version(offset);
    if (count == static_cast<std::int64_t>(piece.size())) return;
    throw EnvironmentError(text(subject(offset), ": it was changed since it was opened: expected ", piece.size(),
                                " more bytes, found ", count, "."));
  }

  // An entity tag never comes back: where it is the same as at the start, all that was read since is of one version.
  void check_unchanged(std::uint64_t offset) const {
    const auto now = Clock::now();
    if (now - checked_.load(std::memory_order_relaxed) < connection_->options().change_check) return;
    require_same_version(offset);
    checked_.store(now, std::memory_order_relaxed);
  }

  void require_same_version(std::uint64_t offset) const {
    const auto current = open_object(*connection_, path_, subject(offset), RequestPhase::reading);
    if (current.version == object_.version) return;
    throw EnvironmentError(text(subject(offset), ": it was changed since it was opened: it was ", object_.version,
                                " and is ", current.version, "."));
  }

  std::shared_ptr<const ArrowConnection> connection_;
  std::string path_;
  std::string name_;
  OpenObject object_;
  mutable std::atomic<Clock::time_point> checked_;
};

}  // namespace

std::unique_ptr<const File> open_arrow_file(std::shared_ptr<const ArrowConnection> connection, std::string path,
                                            std::string name) {
  return std::make_unique<ArrowFile>(std::move(connection), std::move(path), std::move(name));
}

}  // namespace libtrain::data::detail
