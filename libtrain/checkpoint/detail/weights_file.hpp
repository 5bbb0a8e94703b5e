#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <libtrain/checkpoint/tensor_info.hpp>

namespace libtrain::detail {

/// A file of weights of either format. Used by one thread at a time.
class WeightsFile {
 public:
  virtual ~WeightsFile() = default;

  /// What is in the file, in the order that is fastest to read.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }

  /// The tensor number `index` on the CPU. Tensors of a `.pth` file that share a storage there share memory while they
  /// live. Throws EnvironmentError that names the file if it is damaged or its type is none of LibTorch's.
  virtual at::Tensor read(std::size_t index) = 0;

  /// Copies the tensor number `index` to `to`, which has its shape, with the conversion of Tensor::copy_. Throws as
  /// read.
  virtual void copy_to(std::size_t index, const at::Tensor& to);

 protected:
  explicit WeightsFile(std::vector<TensorInfo> tensors) : tensors_(std::move(tensors)) {}

 private:
  std::vector<TensorInfo> tensors_;
};

/// Opens a file, whose format is recognised by its content. Throws EnvironmentError that names it.
std::unique_ptr<WeightsFile> open_weights_file(const std::string& path);

/// The type of a tensor in memory as one in a file; UsageError, which names the tensor, for one that files do not have.
ElementType stored_type(const std::string& name, at::ScalarType type);

/// The reverse; EnvironmentError, which names file and tensor, for one that LibTorch does not have.
at::ScalarType scalar_type(const std::string& path, const TensorInfo& tensor);

}  // namespace libtrain::detail
