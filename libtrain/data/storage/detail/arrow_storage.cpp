#include <libtrain/data/storage/detail/arrow_storage.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <arrow/filesystem/filesystem.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <arrow/util/io_util.h>
#include <arrow/util/key_value_metadata.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/storage/detail/arrow_connection.hpp>
#include <libtrain/data/storage/open_storage.hpp>

namespace libtrain::data::detail {

namespace {

// Size of one request, which is repeated after a failure; large enough that the latency of a request does not matter.
constexpr std::size_t kRequestBytes = std::size_t{32} << 20;

// Written to the last byte of a piece before it is read, and unchanged after a short read; not a byte on which files
// often end.
constexpr std::byte kUntouched{0xa7};

struct OpenObject {
  std::shared_ptr<arrow::io::RandomAccessFile> file;
  std::int64_t size = 0;
  std::string version;
};

// Changes with the object, as far as the store reports changes.
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
  std::string encoding;
  connection.call(subject, phase, [&]() -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(object.file, connection.file_system().OpenInputFile(path));
    ARROW_ASSIGN_OR_RAISE(object.size, object.file->GetSize());
    ARROW_ASSIGN_OR_RAISE(const auto metadata, object.file->ReadMetadata());
    object.version = version_of(metadata.get(), object.size);
    if (metadata != nullptr) encoding = metadata->Get("Content-Encoding").ValueOr("");
    return arrow::Status::OK();
  });
  // The store would return the decompressed object, from its beginning, for a range of the compressed one.
  if (connection.file_system().type_name() == "gcs" && lower_case(encoding).find("gzip") != std::string::npos) {
    throw EnvironmentError(text(subject, ": its Content-Encoding is ", encoding,
                                ", for which Google Cloud Storage decompresses it and ignores byte ranges. Upload it "
                                "uncompressed, or run 'gcloud storage objects update --clear-content-encoding' for it "
                                "to read its compressed bytes."));
  }
  return object;
}

class ArrowFile final : public File {
  using Clock = std::chrono::steady_clock;

 public:
  ArrowFile(std::shared_ptr<const ArrowConnection> connection, std::string path, std::string name)
      : connection_(std::move(connection)), path_(std::move(path)), name_(std::move(name)), checked_(Clock::now()) {
    const auto subject = text("File '", name_, "'");
    object_ = open_object(*connection_, path_, subject, RequestPhase::opening);
    // On GCS this starts the stream that every later read uses without a lock.
    connection_->call(subject, RequestPhase::opening, [&] {
      if (!object_.file->closed()) return arrow::Status::OK();
      throw RequestError(FailureKind::transient, text(subject, ": the store did not open a stream."));
    });
  }

  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return static_cast<std::uint64_t>(object_.size); }

  void read_at(std::uint64_t offset, std::span<std::byte> to) const override {
    require_range(*this, offset, to.size());
    while (!to.empty()) {
      const auto piece = to.first(std::min(to.size(), kRequestBytes));
      read_piece(offset, piece);
      offset += piece.size();
      to = to.subspan(piece.size());
    }
    check_unchanged(offset);
  }

  void read_parts_at(std::uint64_t offset, std::span<std::byte> first, std::span<std::byte> second) const override {
    std::vector<std::byte> both(first.size() + second.size());
    read_at(offset, both);
    std::copy_n(both.begin(), first.size(), first.begin());
    std::copy(both.begin() + std::ssize(first), both.end(), second.begin());
  }

 private:
  std::string subject(std::uint64_t offset) const { return text("File '", name_, "', byte offset ", offset); }

  void read_piece(std::uint64_t offset, std::span<std::byte> piece) const {
    std::int64_t count = 0;
    auto marker = kUntouched;
    const auto read = [&]() -> arrow::Status {
      piece.back() = marker;
      ARROW_ASSIGN_OR_RAISE(
          count, object_.file->ReadAt(static_cast<std::int64_t>(offset), static_cast<std::int64_t>(piece.size()),
                                      static_cast<void*>(piece.data())));
      return arrow::Status::OK();
    };
    try {
      connection_->call(subject(offset), RequestPhase::reading, read);
      // For S3, Arrow returns the requested number of bytes, not the received one. The file itself may contain the
      // marker, but not two different ones.
      if (piece.back() == marker) {
        require_same_version(offset);
        connection_->call(subject(offset), RequestPhase::reading, [&]() -> arrow::Status {
          marker = ~marker;
          ARROW_RETURN_NOT_OK(read());
          if (piece.back() != marker) return arrow::Status::OK();
          throw RequestError(FailureKind::transient, text(subject(offset), ": the store's response ended early."));
        });
      }
    } catch (const RequestError& failure) {
      // Reads on GCS name the generation that was opened, which does not exist any more after the file is written
      // again.
      if (failure.kind() == FailureKind::missing) require_same_version(offset);
      throw;
    }
    if (count == static_cast<std::int64_t>(piece.size())) return;
    throw EnvironmentError(text(subject(offset), ": it has changed since it was opened: expected ", piece.size(),
                                " more bytes, found ", count, "."));
  }

  // An entity tag is never reused: if it is the same as at the start, all bytes read since are of one version.
  void check_unchanged(std::uint64_t offset) const {
    const auto now = Clock::now();
    if (now - checked_.load(std::memory_order_relaxed) < connection_->options().change_check) return;
    require_same_version(offset);
    checked_.store(now, std::memory_order_relaxed);
  }

  void require_same_version(std::uint64_t offset) const {
    const auto current = open_object(*connection_, path_, subject(offset), RequestPhase::reading);
    if (current.version == object_.version) return;
    throw EnvironmentError(text(subject(offset), ": it has changed since it was opened: it was ", object_.version,
                                " and is ", current.version, "."));
  }

  std::shared_ptr<const ArrowConnection> connection_;
  std::string path_;
  std::string name_;
  OpenObject object_;
  mutable std::atomic<Clock::time_point> checked_;
};

class ArrowStorage final : public Storage {
 public:
  ArrowStorage(std::shared_ptr<const ArrowConnection> connection, std::string root, std::string name)
      : connection_(std::move(connection)),
        root_(std::move(root)),
        name_(std::move(name)),
        identity_(text(connection_->endpoint(), '/', root_)) {}

  const std::string& name() const override { return name_; }
  std::string identity() const override { return identity_; }

  std::unique_ptr<const File> open(const std::string& path) const override {
    return std::make_unique<ArrowFile>(connection_, path_of(path), text(name_, '/', path));
  }

  FileInfo info(const std::string& path) const override {
    const auto full = path_of(path);
    const auto subject = text("File '", name_, '/', path, "'");
    arrow::fs::FileInfo found;
    look(subject, [&]() -> arrow::Status {
      ARROW_ASSIGN_OR_RAISE(found, connection_->file_system().GetFileInfo(full));
      if (found.type() != arrow::fs::FileType::NotFound) return arrow::Status::OK();
      return arrow::internal::IOErrorFromErrno(ENOENT, "Path does not exist");
    });
    if (!found.IsFile()) throw EnvironmentError(text(subject, ": expected a file, found a folder."));
    return info_of(path, found);
  }

  std::vector<FileInfo> list(const std::string& folder) const override {
    const auto found = select_all(folder);
    std::vector<FileInfo> files;
    for (const auto& info : found) {
      if (info.IsFile()) files.push_back(info_of(below_root(info.path()), info));
    }
    std::sort(files.begin(), files.end(), by_path);
    add_empty_folders(found, files);
    return files;
  }

  std::optional<std::vector<std::string>> folders(const std::string& folder) const override {
    if (connection_->file_system().type_name() == "gcs") return std::nullopt;  // Arrow finds only folders with a marker
    std::vector<std::string> names;
    for (const auto& info : select(folder, {})) {
      if (info.IsDirectory()) names.push_back(info.base_name());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  // The same for a listing and for info(), so that the two can be compared: S3's response to HEAD has whole seconds,
  // but the listings of MinIO and Ceph have fractions.
  std::string version_of(const arrow::fs::FileInfo& info) const {
    auto time = info.mtime();
    if (connection_->file_system().type_name() == "s3") time = std::chrono::floor<std::chrono::seconds>(time);
    return text(time.time_since_epoch().count(), '-', info.size());
  }

  FileInfo info_of(std::string path, const arrow::fs::FileInfo& info) const {
    return {.path = std::move(path),
            .size = static_cast<std::uint64_t>(std::max(info.size(), std::int64_t{0})),
            .version = version_of(info)};
  }

  arrow::fs::FileInfoVector select(const std::string& folder, arrow::fs::FileSelector selector) const {
    selector.base_dir = folder.empty() ? root_ : path_of(folder);
    const auto subject = text("Folder '", name_, folder.empty() ? "" : "/", folder, "'");
    arrow::fs::FileInfoVector found;
    look(subject, [&]() -> arrow::Status {
      ARROW_ASSIGN_OR_RAISE(found, connection_->file_system().GetFileInfo(selector));
      return arrow::Status::OK();
    });
    return found;
  }

  // All below a folder.
  arrow::fs::FileInfoVector select_all(const std::string& folder) const {
    arrow::fs::FileSelector selector;
    selector.recursive = connection_->file_system().type_name() != "abfs";
    auto found = select(folder, selector);
    if (selector.recursive) return found;
    // The folders of an account with a hierarchical namespace are there by themselves, and listed with one request.
    const auto is_by_itself = [](const auto& info) { return info.IsDirectory() && info.mtime() != arrow::fs::kNoTime; };
    if (std::any_of(found.begin(), found.end(), is_by_itself)) {
      selector.recursive = true;
      return select(folder, selector);
    }
    // Those of other accounts are requested one by one. Arrow's client would do so in functions that are noexcept,
    // where a credential that cannot be renewed ends the process.
    selector.allow_not_found = true;  // a folder goes with its last file
    require_named_folders(folder, found);
    for (std::size_t next = 0; next < found.size(); ++next) {
      if (!found[next].IsDirectory()) continue;
      const auto inner = below_root(found[next].path());
      auto inside = select(inner, selector);
      require_named_folders(inner, inside);
      found.insert(found.end(), std::make_move_iterator(inside.begin()), std::make_move_iterator(inside.end()));
    }
    return found;
  }

  // In 'a//b', Arrow takes the folder between the slashes for 'a' itself.
  void require_named_folders(const std::string& folder, const arrow::fs::FileInfoVector& found) const {
    const auto own = folder.empty() ? root_ : path_of(folder);
    for (const auto& info : found) {
      if (info.path() != own) continue;
      throw EnvironmentError(text("Folder '", name_, folder.empty() ? "" : "/", folder,
                                  "' contains an object with '//' in its name. Rename the object."));
    }
  }

  static bool by_path(const FileInfo& left, const FileInfo& right) { return left.path < right.path; }

  // Adds the folders that contain no file to the sorted `files`.
  void add_empty_folders(const arrow::fs::FileInfoVector& found, std::vector<FileInfo>& files) const {
    std::vector<FileInfo> empty;
    for (const auto& info : found) {
      if (!info.IsDirectory()) continue;
      FileInfo folder{.path = below_root(info.path()) + '/', .kind = FileKind::empty_folder};
      const auto inside = std::lower_bound(files.begin(), files.end(), folder, by_path);
      if (inside == files.end() || !inside->path.starts_with(folder.path)) empty.push_back(std::move(folder));
    }
    files.insert(files.end(), std::make_move_iterator(empty.begin()), std::make_move_iterator(empty.end()));
    std::sort(files.begin(), files.end(), by_path);
  }

  std::string path_of(const std::string& path) const {
    require_path_below(name_, path);
    return text(root_, '/', path);
  }

  std::string below_root(const std::string& full) const {
    const auto prefix = root_ + '/';
    if (!full.starts_with(prefix)) {
      throw EnvironmentError(text("The listing of '", name_, "' contains '", full, "', which does not lie in it."));
    }
    return full.substr(prefix.size());
  }

  // Arrow's client for Azure determines in its first look whether the account has a hierarchical namespace, and stores
  // that without a lock: looks run one after the other until one has succeeded.
  void look(const std::string& subject, const ArrowConnection::Request& request) const {
    if (has_looked_.load(std::memory_order_acquire)) {
      connection_->call(subject, RequestPhase::opening, request);
      return;
    }
    const std::lock_guard lock{first_look_};
    connection_->call(subject, RequestPhase::opening, request);
    has_looked_.store(true, std::memory_order_release);
  }

  std::shared_ptr<const ArrowConnection> connection_;
  std::string root_;
  std::string name_;
  std::string identity_;
  mutable std::mutex first_look_;
  mutable std::atomic<bool> has_looked_{false};
};

}  // namespace

std::shared_ptr<const Storage> open_arrow_storage(const Location& location, const StorageOptions& options) {
  return open_arrow_storage(std::make_shared<const ArrowConnection>(location, options), location);
}

std::shared_ptr<const Storage> open_arrow_storage(std::shared_ptr<const ArrowConnection> connection,
                                                  const Location& location) {
  auto root = location.path.empty() ? location.container : text(location.container, '/', location.path);
  return std::make_shared<const ArrowStorage>(std::move(connection), std::move(root), location.name);
}

}  // namespace libtrain::data::detail

bool libtrain::data::has_arrow() {
  return true;
}
