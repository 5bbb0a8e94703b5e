#pragma once

#include <exception>
#include <memory>
#include <mutex>

#include <libtrain/data/storage/file.hpp>

namespace arrow::io {
class RandomAccessFile;
}

namespace libtrain::data::detail {

/// The first exception that reading a file threw: Arrow, through which exceptions do not pass, hands on no more than
/// its words. Any thread may call it.
class ReadFailure {
 public:
  /// Keeps the exception that is being handled, unless there is one already.
  void keep_current();

  /// Throws what was kept, if anything.
  void rethrow() const;

 private:
  mutable std::mutex mutex_;
  std::exception_ptr exception_;
};

/// `file` as Arrow reads files, for one reader. ReadAt() reads on the thread that calls it, any number at once; what
/// File::read_at throws becomes a status of the same words and is kept in `failure`, which must outlive the reading.
std::shared_ptr<arrow::io::RandomAccessFile> parquet_input(std::shared_ptr<const File> file, ReadFailure& failure);

}  // namespace libtrain::data::detail
