#include <libtrain/checkpoint/detail/weights_file.hpp>

#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/Storage.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/detail/pth_file.hpp>
#include <libtrain/checkpoint/detail/weights_format.hpp>
#include <libtrain/checkpoint/safetensors.hpp>

namespace libtrain::detail {

namespace {

static_assert(std::endian::native == std::endian::little,
              "files have little-endian numbers, which are read as they are");

struct TypePair {
  ElementType stored;
  at::ScalarType scalar;
};

constexpr std::array kScalarTypes{
    TypePair{ElementType::boolean, at::kBool},
    TypePair{ElementType::uint8, at::kByte},
    TypePair{ElementType::int8, at::kChar},
    TypePair{ElementType::float8_e5m2, at::kFloat8_e5m2},
    TypePair{ElementType::float8_e4m3, at::kFloat8_e4m3fn},
    TypePair{ElementType::float8_e8m0, at::kFloat8_e8m0fnu},
    TypePair{ElementType::float8_e4m3fnuz, at::kFloat8_e4m3fnuz},
    TypePair{ElementType::float8_e5m2fnuz, at::kFloat8_e5m2fnuz},
    TypePair{ElementType::int16, at::kShort},
    TypePair{ElementType::uint16, at::kUInt16},
    TypePair{ElementType::float16, at::kHalf},
    TypePair{ElementType::bfloat16, at::kBFloat16},
    TypePair{ElementType::int32, at::kInt},
    TypePair{ElementType::uint32, at::kUInt32},
    TypePair{ElementType::float32, at::kFloat},
    TypePair{ElementType::complex64, at::kComplexFloat},
    TypePair{ElementType::float64, at::kDouble},
    TypePair{ElementType::int64, at::kLong},
    TypePair{ElementType::uint64, at::kUInt64},
    TypePair{ElementType::complex128, at::kComplexDouble},
};

std::span<std::byte> memory_of(const at::Tensor& contiguous) {
  return {static_cast<std::byte*>(contiguous.data_ptr()), contiguous.nbytes()};
}

std::vector<TensorInfo> infos_of(const auto& stored) {
  std::vector<TensorInfo> infos;
  for (const auto& tensor : stored) infos.push_back(tensor.info);
  return infos;
}

class SafetensorsWeights final : public WeightsFile {
 public:
  explicit SafetensorsWeights(SafetensorsFile file) : WeightsFile(infos_of(file.tensors())), file_(std::move(file)) {}

  at::Tensor read(std::size_t index) override {
    const auto& stored = file_.tensors()[index];
    const auto tensor = at::empty(stored.info.shape, scalar_type(file_.path(), stored.info));
    file_.read(stored, memory_of(tensor));
    return tensor;
  }

  void copy_to(std::size_t index, const at::Tensor& to) override {
    const auto& stored = file_.tensors()[index];
    const bool has_same_bytes =
        to.is_cpu() && to.is_contiguous() && to.scalar_type() == scalar_type(file_.path(), stored.info);
    if (!has_same_bytes) return WeightsFile::copy_to(index, to);
    file_.read(stored, memory_of(to));
  }

 private:
  SafetensorsFile file_;
};

class PthWeights final : public WeightsFile {
 public:
  explicit PthWeights(std::unique_ptr<const PthFile> file)
      : WeightsFile(infos_of(file->tensors())), file_(std::move(file)) {}

  at::Tensor read(std::size_t index) override {
    const auto& pickled = file_->tensors()[index];
    const auto options = at::TensorOptions().dtype(scalar_type(file_->path(), pickled.info));
    auto tensor = at::empty({0}, options);
    if (pickled.storage_bytes == 0) return tensor.resize_(pickled.info.shape);
    return tensor.set_(storage_of(pickled), static_cast<std::int64_t>(pickled.first), pickled.info.shape,
                       pickled.strides);
  }

 private:
  at::Storage storage_of(const PickledTensor& pickled) {
    auto& known = storages_.try_emplace(pickled.storage, WeakStorage{at::Storage{}.getWeakStorageImpl()}).first->second;
    if (auto storage = known.lock()) return last_ = at::Storage{std::move(storage)};
    const auto bytes = at::empty({static_cast<std::int64_t>(pickled.storage_bytes)}, at::kByte);
    file_->read_storage(pickled, memory_of(bytes));
    last_ = bytes.storage();
    known = last_.getWeakStorageImpl();
    return last_;
  }

  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

  std::unique_ptr<const PthFile> file_;
  std::map<std::string, WeakStorage> storages_;  // those that tensors still refer to
  at::Storage last_;                             // neighbours share one, where several do
};

}  // namespace

void WeightsFile::copy_to(std::size_t index, const at::Tensor& to) {
  to.copy_(read(index));
}

std::unique_ptr<WeightsFile> open_weights_file(const std::string& path) {
  if (weights_format(path) == WeightsFormat::pth) {
    return std::make_unique<PthWeights>(std::make_unique<const PthFile>(path));
  }
  return std::make_unique<SafetensorsWeights>(SafetensorsFile{path});
}

ElementType stored_type(const std::string& name, at::ScalarType type) {
  for (const auto& [stored, scalar] : kScalarTypes) {
    if (scalar == type) return stored;
  }
  throw UsageError(text("Tensor '", name, "' cannot be written to a file of weights: its dtype is ", type,
                        ". Convert it to one of floating-point or whole numbers."));
}

at::ScalarType scalar_type(const std::string& path, const TensorInfo& tensor) {
  for (const auto& [stored, scalar] : kScalarTypes) {
    if (stored == tensor.type) return scalar;
  }
  throw EnvironmentError(text("Weights file '", path, "': tensor '", tensor.name, "' has elements of type ",
                              to_string(tensor.type), ", which LibTorch does not have. Convert it with Python."));
}

}  // namespace libtrain::detail
