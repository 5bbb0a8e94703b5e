#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/checkpoint/tensor_info.hpp>

namespace libtrain {

namespace detail {
class InputFile;
}

/// A tensor of a safetensors file and the place of its data.
struct StoredTensor {
  TensorInfo info = {};
  std::uint64_t offset = 0;  ///< of the first byte, from the beginning of the file; it may be misaligned for the type
  std::uint64_t bytes = 0;
};

/// A local safetensors file (https://github.com/huggingface/safetensors): the length of the header as a little-endian
/// 64-bit number, the header in JSON, the tensors, little-endian, row-major, without gaps. The header is read when the
/// file is opened, tensors when they are asked for. Immutable: any thread may read, several at once.
///
/// Refused is what the reference reader refuses: a header that is longer than 100,000,000 bytes or than the file, that
/// is not UTF-8 or not JSON, or that lacks or misspells a field; an unknown element type; sizes that overflow, differ
/// from shape and type, or end within a byte; tensors that overlap or leave gaps; a file that is shorter or longer than
/// its header says. Refused beyond that are duplicate keys, a header that does not begin with `{`, values nested deeper
/// than 4, more than 1,000,000 tensors, more than 16 dimensions, names longer than 4,096 bytes, and numbers of 2^63 or
/// more.
class SafetensorsFile {
 public:
  /// Throws EnvironmentError: one sentence that names the file and what is wrong with it.
  explicit SafetensorsFile(std::string path);

  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();

  const std::string& path() const;

  /// Ordered by offset, which is the order to read all of them in.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }

  /// The free-form strings of `__metadata__`.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// nullptr if no tensor has this name. Valid as long as this object.
  const StoredTensor* find(std::string_view name) const;

  /// Reads the data of one of tensors() into `to`, which has `tensor.bytes` bytes (UsageError otherwise). Values are
  /// not checked. Throws EnvironmentError if the file was truncated since it was opened, or cannot be read.
  void read(const StoredTensor& tensor, std::span<std::byte> to) const;

  /// The CRC-32C (Castagnoli) of the data of one of tensors(). Throws as read().
  std::uint32_t crc32c(const StoredTensor& tensor) const;

 private:
  std::unique_ptr<const detail::InputFile> file_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, std::size_t, std::less<>> positions_;  // in tensors_, by name
};

/// Writes a safetensors file of the same bytes as Python's `safetensors.torch.save_file`: tensors ordered by type, the
/// most aligned first, and by name, so that each is aligned. The file is complete or absent: it is written under a
/// temporary name in the same folder, synced and renamed, and replaces an existing one.
///
/// `data` is called once for each tensor, in the order of the file, with its index in `tensors`, and returns its bytes,
/// which are written before the next call: no copy of all data is made.
///
/// Throws UsageError, before anything is written, for a name that is given twice, is `__metadata__`, is longer than
/// 4,096 bytes or is not UTF-8, for complex128, negative sizes and more than SafetensorsFile reads; UsageError if
/// `data` returns another number of bytes; EnvironmentError that names the file if it cannot be written.
void write_safetensors(const std::string& path, const std::vector<TensorInfo>& tensors,
                       const std::function<std::span<const std::byte>(std::size_t index)>& data,
                       const std::map<std::string, std::string>& metadata = {});

/// Where the bytes of a safetensors file go: first the header, then each tensor.
struct SafetensorsSink {
  std::function<void(std::string_view bytes)> header = {};
  std::function<void(const std::string& name, std::string_view bytes)> tensor = {};
};

/// The same without a file of its own.
void write_safetensors(const SafetensorsSink& sink, const std::vector<TensorInfo>& tensors,
                       const std::function<std::span<const std::byte>(std::size_t index)>& data,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace libtrain
