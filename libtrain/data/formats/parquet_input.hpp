#pragma once

#include <memory>

#include <libtrain/data/storage/file.hpp>

namespace arrow::io {
class RandomAccessFile;
}

namespace libtrain::data::detail {

/// `file` as Arrow reads files. ReadAt() reads on the thread that calls it, any number at once; what File::read_at
/// throws becomes a status of the same words.
std::shared_ptr<arrow::io::RandomAccessFile> parquet_input(std::unique_ptr<const File> file);

}  // namespace libtrain::data::detail
