#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <libtrain/checkpoint/detail/pth_file.hpp>
#include <libtrain/checkpoint/safetensors.hpp>
#include <libtrain/checkpoint/tensor_info.hpp>

namespace libtrain::checkpoint_tool {

/// Reads the tensors of a safetensors or `.pth` file, one at a time and without LibTorch. Used by one thread.
class TensorReader {
 public:
  /// Throws EnvironmentError that names the file if it is missing, damaged or of another format.
  explicit TensorReader(const std::string& path);

  const std::string& path() const { return path_; }

  /// In the order that is fastest to read.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }

  /// The strings that the file says of itself; {"format": "pt"} for a `.pth` file, as libtrain writes it.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// Whether read() notices bytes that have changed: `.pth` files have checksums, and safetensors files have none.
  bool has_checksums() const { return pth_ != nullptr; }

  /// The position in tensors(); std::nullopt if there is none of this name.
  std::optional<std::size_t> find(const std::string& name) const;

  /// The elements of a tensor, row-major without gaps. Valid until the next call. Throws EnvironmentError that names
  /// the file if it is damaged or cannot be read, or if there is not enough memory.
  std::span<const std::byte> read(std::size_t index);

 private:
  std::span<const std::byte> read_pickled(const detail::PickledTensor& tensor);
  std::span<std::byte> room(std::vector<std::byte>& buffer, std::uint64_t bytes, const TensorInfo& tensor) const;

  std::string path_;
  std::unique_ptr<const detail::PthFile> pth_;  // one of the two
  std::optional<SafetensorsFile> safetensors_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::size_t> positions_;
  std::map<std::string, std::string> metadata_{{"format", "pt"}};
  std::vector<std::byte> elements_;
  std::vector<std::byte> storage_;          // of a .pth file: neighbours may be views of the same one
  std::optional<std::string> storage_key_;  // of the storage that is in storage_
};

}  // namespace libtrain::checkpoint_tool
