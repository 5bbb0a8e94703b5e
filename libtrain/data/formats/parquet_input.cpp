#include <libtrain/data/formats/parquet_input.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <utility>

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <arrow/status.h>

#include <libtrain/base/text.hpp>

namespace libtrain::data::detail {

namespace {

class ParquetInput final : public arrow::io::RandomAccessFile {
 public:
  ParquetInput(std::shared_ptr<const File> file, ReadFailure& failure) : file_(std::move(file)), failure_(failure) {}

  using arrow::io::RandomAccessFile::ReadAt;

  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }

  arrow::Result<std::int64_t> GetSize() override { return static_cast<std::int64_t>(file_->size()); }
  arrow::Result<std::int64_t> Tell() const override { return position_; }

  arrow::Status Seek(std::int64_t position) override {
    ARROW_RETURN_NOT_OK(available(position, 0).status());
    position_ = position;
    return arrow::Status::OK();
  }

  arrow::Result<std::int64_t> ReadAt(std::int64_t position, std::int64_t count, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const auto readable, available(position, count));
    try {
      file_->read_at(static_cast<std::uint64_t>(position),
                     std::span{static_cast<std::byte*>(out), static_cast<std::size_t>(readable)});
    } catch (const std::exception& error) {
      failure_.keep_current();
      return arrow::Status::IOError(error.what());
    }
    return readable;
  }

  // Memory is allocated for as many bytes as there are.
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(std::int64_t position, std::int64_t count) override {
    ARROW_ASSIGN_OR_RAISE(const auto readable, available(position, count));
    ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::Buffer> buffer, arrow::AllocateBuffer(readable));
    ARROW_RETURN_NOT_OK(ReadAt(position, readable, static_cast<void*>(buffer->mutable_data())).status());
    return buffer;
  }

  arrow::Result<std::int64_t> Read(std::int64_t count, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const auto read, ReadAt(position_, count, out));
    position_ += read;
    return read;
  }

  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(std::int64_t count) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, ReadAt(position_, count));
    position_ += buffer->size();
    return buffer;
  }

 private:
  // How many of `count` bytes there are from `position` on.
  arrow::Result<std::int64_t> available(std::int64_t position, std::int64_t count) const {
    const auto size = static_cast<std::int64_t>(file_->size());
    if (position < 0 || position > size || count < 0) {
      return arrow::Status::IOError(text("byte offset ", position, ": expected ", count, " bytes in a file of ", size));
    }
    return std::min(count, size - position);
  }

  std::shared_ptr<const File> file_;
  ReadFailure& failure_;
  std::int64_t position_ = 0;
  bool closed_ = false;
};

}  // namespace

void ReadFailure::keep_current() {
  const std::lock_guard lock(mutex_);
  if (!exception_) exception_ = std::current_exception();
}

void ReadFailure::rethrow() const {
  std::exception_ptr exception;
  {
    const std::lock_guard lock(mutex_);
    exception = exception_;
  }
  if (exception) std::rethrow_exception(exception);
}

std::shared_ptr<arrow::io::RandomAccessFile> parquet_input(std::shared_ptr<const File> file, ReadFailure& failure) {
  return std::make_shared<ParquetInput>(std::move(file), failure);
}

}  // namespace libtrain::data::detail
