#include <tools/checkpoint/tensor_reader.hpp>

#include <cstring>
#include <new>
#include <stdexcept>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/detail/weights_format.hpp>

namespace libtrain::checkpoint_tool {

namespace {

std::size_t element_bytes(const TensorInfo& tensor) {
  return bits_of(tensor.type) / 8;
}

bool is_contiguous(const detail::PickledTensor& tensor) {
  std::int64_t expected = 1;
  for (std::size_t i = tensor.strides.size(); i-- > 0;) {
    const auto size = tensor.info.shape[i];
    if (size != 1 && tensor.strides[i] != expected) return false;
    expected *= size;
  }
  return true;
}

// Copies the elements of a tensor that is not empty, row-major. The stride of a dimension of size 1 may be any number:
// unsigned ones wrap there and back.
void gather(const detail::PickledTensor& tensor, std::span<const std::byte> storage, std::span<std::byte> to) {
  const auto bytes = element_bytes(tensor.info);
  const std::vector<std::uint64_t> sizes{tensor.info.shape.begin(), tensor.info.shape.end()};
  const std::vector<std::uint64_t> strides{tensor.strides.begin(), tensor.strides.end()};
  std::vector<std::uint64_t> position(sizes.size());
  std::uint64_t element = tensor.first;
  for (std::size_t done = 0; done < to.size(); done += bytes) {
    std::memcpy(&to[done], &storage[element * bytes], bytes);
    for (std::size_t i = sizes.size(); i-- > 0;) {
      element += strides[i];
      if (++position[i] < sizes[i]) break;
      element -= strides[i] * sizes[i];
      position[i] = 0;
    }
  }
}

}  // namespace

TensorReader::TensorReader(const std::string& path) : path_(path) {
  if (detail::weights_format(path) == detail::WeightsFormat::pth) {
    pth_ = std::make_unique<const detail::PthFile>(path);
    for (const auto& tensor : pth_->tensors()) tensors_.push_back(tensor.info);
  } else {
    safetensors_.emplace(path);
    for (const auto& tensor : safetensors_->tensors()) tensors_.push_back(tensor.info);
    metadata_ = safetensors_->metadata();
  }
  for (std::size_t index = 0; index < tensors_.size(); ++index) positions_.emplace(tensors_[index].name, index);
}

std::optional<std::size_t> TensorReader::find(const std::string& name) const {
  const auto found = positions_.find(name);
  return found == positions_.end() ? std::nullopt : std::optional{found->second};
}

std::span<const std::byte> TensorReader::read(std::size_t index) {
  if (pth_) return read_pickled(pth_->tensors()[index]);
  const auto& stored = safetensors_->tensors()[index];
  const auto elements = room(elements_, stored.bytes, stored.info);
  safetensors_->read(stored, elements);
  return elements;
}

std::span<const std::byte> TensorReader::read_pickled(const detail::PickledTensor& tensor) {
  const std::uint64_t bytes = *contiguous_bytes(tensor.info.type, tensor.info.shape);
  if (storage_key_ != tensor.storage) {
    storage_key_.reset();
    pth_->read_storage(tensor, room(storage_, tensor.storage_bytes, tensor.info));
    storage_key_ = tensor.storage;
  }
  if (bytes == 0) return {};
  if (is_contiguous(tensor)) {
    return std::span{storage_}.subspan(tensor.first * element_bytes(tensor.info), bytes);
  }
  const auto elements = room(elements_, bytes, tensor.info);
  gather(tensor, storage_, elements);
  return elements;
}

std::span<std::byte> TensorReader::room(std::vector<std::byte>& buffer, std::uint64_t bytes,
                                        const TensorInfo& tensor) const {
  const auto fail = [&] {
    throw EnvironmentError(text("There is not enough memory for the ", bytes, " bytes of tensor '", tensor.name,
                                "' of '", path_, "'. Use a machine that has more."));
  };
  try {
    buffer.resize(bytes);
  } catch (const std::bad_alloc&) {
    fail();
  } catch (const std::length_error&) {
    fail();
  }
  return buffer;
}

}  // namespace libtrain::checkpoint_tool
