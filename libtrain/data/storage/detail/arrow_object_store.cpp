#include <libtrain/data/storage/detail/arrow_object_store.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <arrow/filesystem/filesystem.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <arrow/status.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/detail/arrow_connection.hpp>
#include <libtrain/data/storage/detail/arrow_storage.hpp>

namespace libtrain::data::detail {

namespace {

using libtrain::detail::ByteSink;
using libtrain::detail::StoredObject;

// Arrow sends parts of this size without copying them once more, to S3 in the background, as many as it is given.
constexpr std::size_t kPartBytes = std::size_t{10} << 20;
constexpr std::size_t kPartsInMemory = 6;
constexpr std::size_t kReadBytes = std::size_t{8} << 20;

// Azure's client throws where a credential cannot be renewed.
template <typename Call>
arrow::Status status_of(const Call& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    return arrow::Status::IOError(error.what());
  }
}

// Passes through the function that gives the content.
struct WriteFailed {
  arrow::Status status;
};

class PartWriter {
 public:
  explicit PartWriter(arrow::io::OutputStream& stream) : stream_(stream) {}

  void write(std::string_view bytes) {
    for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kPartBytes))) {
      const auto part = bytes.substr(0, kPartBytes);
      require([&] { return stream_.Write(part.data(), static_cast<std::int64_t>(part.size())); });
      unsent_ += part.size();
      if (unsent_ < kPartsInMemory * kPartBytes) continue;
      require([&] { return stream_.Flush(); });
      unsent_ = 0;
    }
  }

 private:
  template <typename Call>
  static void require(const Call& call) {
    if (auto status = status_of(call); !status.ok()) throw WriteFailed{std::move(status)};
  }

  arrow::io::OutputStream& stream_;
  std::size_t unsent_ = 0;
};

// `failure` is what `content` throws. Without Abort, the stream's destructor would complete the object; Google's stream
// has no Abort and completes it.
arrow::Status write_stream(arrow::io::OutputStream& stream, const std::function<void(const ByteSink&)>& content,
                           std::exception_ptr& failure) {
  PartWriter writer{stream};
  auto status = arrow::Status::OK();
  try {
    content([&](std::string_view bytes) { writer.write(bytes); });
    status = status_of([&] { return stream.Close(); });
  } catch (WriteFailed& failed) {
    status = std::move(failed.status);
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure || !status.ok()) static_cast<void>(status_of([&] { return stream.Abort(); }));
  return status;
}

class ArrowObjectStore final : public libtrain::detail::ObjectStore {
 public:
  ArrowObjectStore(const Location& location, const StorageOptions& options)
      : connection_(std::make_shared<const ArrowConnection>(location, options)),
        storage_(open_arrow_storage(connection_, location)),
        container_(location.container),
        root_(location.path.empty() ? location.container : text(location.container, '/', location.path)) {}

  const std::string& name() const override { return storage_->name(); }

  std::vector<StoredObject> list() override {
    std::vector<StoredObject> objects;
    try {
      for (auto& info : storage_->list("")) {
        if (info.kind == FileKind::file) objects.push_back({.name = std::move(info.path), .bytes = info.size});
      }
    } catch (const RequestError& failure) {
      if (failure.kind() != FailureKind::missing) throw;
      require_container();
    }
    return objects;
  }

  void get(const std::string& name, const ByteSink& sink) override {
    const auto file = storage_->open(name);
    std::string piece;
    for (std::uint64_t offset = 0; offset < file->size(); offset += piece.size()) {
      piece.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kReadBytes, file->size() - offset)));
      file->read_at(offset, std::as_writable_bytes(std::span{piece}));
      sink(piece);
    }
  }

  void put(const std::string& name, const std::function<void(const ByteSink&)>& content) override {
    std::exception_ptr failure;
    connection_->call(subject(name), RequestPhase::writing, [&]() -> arrow::Status {
      ARROW_ASSIGN_OR_RAISE(const auto stream, connection_->file_system().OpenOutputStream(path_of(name)));
      return write_stream(*stream, content, failure);
    });
    if (failure) std::rethrow_exception(failure);
  }

  void remove(const std::string& name) override {
    remove(subject(name), [&] { return connection_->file_system().DeleteFile(path_of(name)); });
  }

  void remove_folder(const std::string& folder) override {
    remove(text("Folder '", name(), '/', folder, "'"),
           [&] { return connection_->file_system().DeleteDir(path_of(folder)); });
  }

 private:
  std::string subject(const std::string& name) const { return text("File '", this->name(), '/', name, "'"); }

  std::string path_of(const std::string& path) const {
    require_path_below(name(), path);
    return text(root_, '/', path);
  }

  void remove(const std::string& subject, const ArrowConnection::Request& request) const {
    try {
      connection_->call(subject, RequestPhase::writing, request);
    } catch (const RequestError& failure) {
      if (failure.kind() != FailureKind::missing) throw;
    }
  }

  // A location without objects is as good as an empty one, but not if its container has been misspelled. With
  // permission for objects alone, a run cannot look at the container.
  void require_container() const {
    auto type = arrow::fs::FileType::Unknown;
    try {
      connection_->call(text("'", name(), "'"), RequestPhase::opening, [&]() -> arrow::Status {
        ARROW_ASSIGN_OR_RAISE(const auto info, connection_->file_system().GetFileInfo(container_));
        type = info.type();
        return arrow::Status::OK();
      });
    } catch (const StorageUnavailable&) {
      return;
    }
    if (type != arrow::fs::FileType::NotFound) return;
    throw EnvironmentError(text("'", name(), "': the container or bucket '", container_,
                                "' does not exist. Create it, or correct the location."));
  }

  std::shared_ptr<const ArrowConnection> connection_;
  std::shared_ptr<const Storage> storage_;
  std::string container_;
  std::string root_;
};

}  // namespace

std::unique_ptr<libtrain::detail::ObjectStore> open_object_store(const Location& location,
                                                                 const StorageOptions& options) {
  return std::make_unique<ArrowObjectStore>(location, options);
}

}  // namespace libtrain::data::detail
