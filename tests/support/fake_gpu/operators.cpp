#include <tests/support/fake_gpu/operators.hpp>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <libtrain/base/text.hpp>

#include <tests/support/fake_gpu/memory.hpp>
#include <tests/support/fake_gpu/streams.hpp>

namespace libtrain::test::fake {

namespace {

using c10::IValue;
using Values = std::vector<IValue>;

bool on_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().is_privateuseone();
}

// Applies `map` to each defined tensor in an argument.
template <typename Map>
IValue map_tensors(const IValue& value, const Map& map) {
  const auto mapped = [&map](const at::Tensor& tensor) { return tensor.defined() ? map(tensor) : tensor; };
  if (value.isTensor()) return mapped(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> result;
    for (const auto& tensor : value.toTensorVector()) result.push_back(mapped(tensor));
    return result;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> result;
    for (const auto& tensor : value.toOptionalTensorVector()) {
      result.push_back(tensor ? std::optional(mapped(*tensor)) : std::nullopt);
    }
    return result;
  }
  return value;
}

template <typename Visit>
void for_each_tensor(const Values& values, const Visit& visit) {
  for (const auto& value : values) {
    map_tensors(value, [&](const at::Tensor& tensor) {
      visit(tensor);
      return tensor;
    });
  }
}

at::Tensor host_clone(const at::Tensor& tensor) {
  auto copy = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().pinned_memory(false));
  copy.copy_(tensor);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  return copy;
}

// Kernels run below autograd, autocast and views.
struct KernelScope {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
  at::NoGradGuard no_grad;
};

// The device of the tensors, or that of an argument `device`. All must be on one fake GPU, but for CPU tensors of one
// element, whose value a kernel takes along, and indices.
at::Device device_of(const c10::OperatorHandle& op, const Values& values) {
  std::optional<at::Device> device;
  for_each_tensor(values, [&](const at::Tensor& tensor) {
    if (!on_device(tensor)) return;
    TORCH_CHECK(!device || *device == tensor.device(), op.operator_name(),
                ": expected all tensors to be on the same device, but found ", tensor.device(), " and ", *device, ".");
    device = tensor.device();
  });
  for (const auto& value : values) {
    if (!device && value.isDevice()) device = value.toDevice();
  }
  TORCH_CHECK(device && device->is_privateuseone(), op.operator_name(), ": no argument is on a fake GPU.");
  return *device;
}

void check_host_tensors(const c10::OperatorHandle& op, const Values& values, FakeStream& stream) {
  const auto name = op.schema().name();
  const bool takes_indices = name.find("index") != std::string::npos;
  for_each_tensor(values, [&](const at::Tensor& tensor) {
    if (on_device(tensor) || tensor.dim() == 0) return;
    TORCH_CHECK(takes_indices, op.operator_name(), ": expected all tensors to be on the same device, but found one of ",
                tensor.sizes(), " on the CPU.");
    count_host_synchronization(text(name, " with indices on the CPU"), &stream);
  });
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// Random numbers are those of a CPU generator with a seed that is drawn when the work is queued, so that they do not
// depend on the order in which streams run.
IValue seeded_generator(const IValue& given, const at::Device& device) {
  auto source = given.isNone() ? at::globalContext().defaultGenerator(device) : given.toGenerator();
  const std::lock_guard lock(source.mutex());
  return at::detail::createCPUGenerator(source.get<at::CPUGeneratorImpl>()->random64());
}

bool is_generator(const c10::Argument& argument) {
  return argument.name() == "generator";
}

// Arguments for the CPU kernel over the operands' memory.
Values kernel_arguments(const c10::OperatorHandle& op, const Values& values, const at::Device& device) {
  Values result;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (is_generator(op.schema().arguments()[i])) {
      result.push_back(seeded_generator(values[i], device));
    } else if (values[i].isDevice()) {
      result.emplace_back(at::Device(at::kCPU));
    } else {
      result.push_back(map_tensors(values[i], [](const at::Tensor& tensor) {
        return on_device(tensor) ? kernel_view(tensor) : host_clone(tensor);
      }));
    }
  }
  return result;
}

// The caller's arguments outlive the call: a boxed kernel drops those on its stack before it reads results that refer
// to them, the std::tuple<Tensor&, Tensor&> of nll_loss_forward.output (LibTorch 2.11,
// make_boxed_from_unboxed_functor).
Values call(const c10::OperatorHandle& op, const Values& arguments) {
  auto stack = arguments;
  op.callBoxed(stack);
  return stack;
}

// What results look like.
struct Layout {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  at::ScalarType type;
};
using Layouts = std::vector<std::optional<Layout>>;  // std::nullopt: an undefined tensor

struct ResultLayout {
  Layouts tensors;
  bool is_list = false;
};

ResultLayout layout_of(const IValue& value) {
  ResultLayout result;
  result.is_list = value.isTensorList();
  const auto add = [&result](const at::Tensor& tensor) {
    if (!tensor.defined()) return result.tensors.push_back(std::nullopt);
    result.tensors.push_back(Layout{tensor.sizes().vec(), tensor.strides().vec(), tensor.scalar_type()});
  };
  if (value.isTensor()) add(value.toTensor());
  if (value.isTensorList()) {
    for (const auto& tensor : value.toTensorVector()) add(tensor);
  }
  return result;
}

// The call, but for the contents of the tensors.
std::string signature_of(const c10::OperatorHandle& op, const Values& values) {
  std::ostringstream key;
  key << op.operator_name();
  for (const auto& value : values) {
    key << '|';
    if (value.isTensor() || value.isTensorList() || value.isOptionalTensorList()) {
      map_tensors(value, [&key](const at::Tensor& tensor) {
        key << tensor.sizes() << tensor.strides() << tensor.scalar_type() << tensor.device().type()
            << tensor.unsafeGetTensorImpl()->is_wrapped_number() << ';';
        return tensor;
      });
      if (value.isTensor() && !value.toTensor().defined()) key << "undefined";
    } else if (!value.isGenerator()) {
      key << value;
    }
  }
  return key.str();
}

// Runs the operator on tensors without data, or with zeros where it has no kernel for these.
Values run_without_data(const c10::OperatorHandle& op, const Values& values) {
  const auto arguments_on = [&](at::DeviceType type) {
    Values result;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (is_generator(op.schema().arguments()[i])) {
        result.push_back(type == at::kCPU ? IValue(at::detail::createCPUGenerator()) : IValue());
      } else if (values[i].isDevice()) {
        result.emplace_back(at::Device(type));
      } else {
        result.push_back(map_tensors(values[i], [type](const at::Tensor& tensor) {
          if (!on_device(tensor)) return host_clone(tensor);
          auto replica = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(type));
          return type == at::kCPU ? replica.zero_() : replica;
        }));
      }
    }
    return result;
  };
  try {
    return call(op, arguments_on(at::kMeta));
  } catch (const c10::Error&) {
    return call(op, arguments_on(at::kCPU));  // which throws again if the arguments are wrong
  }
}

std::vector<ResultLayout> result_layouts(const c10::OperatorHandle& op, const Values& values) {
  static std::mutex mutex;
  static std::map<std::string, std::vector<ResultLayout>> known;
  const auto key = signature_of(op, values);
  {
    const std::lock_guard lock(mutex);
    if (const auto found = known.find(key); found != known.end()) return found->second;
  }
  std::vector<ResultLayout> layouts;
  for (const auto& value : run_without_data(op, values)) layouts.push_back(layout_of(value));
  const std::lock_guard lock(mutex);
  return known[key] = layouts;
}

at::Tensor allocate(const std::optional<Layout>& layout, const at::Device& device) {
  if (!layout) return {};
  return at::empty_strided(layout->sizes, layout->strides, at::TensorOptions(layout->type).device(device));
}

IValue allocate(const ResultLayout& layout, const at::Device& device) {
  if (!layout.is_list) return allocate(layout.tensors.front(), device);
  c10::List<at::Tensor> tensors;
  for (const auto& tensor : layout.tensors) tensors.push_back(allocate(tensor, device));
  return tensors;
}

void resize(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides) {
  const auto bytes = at::detail::computeStorageNbytes(sizes, strides, tensor.dtype().itemsize(),
                                                      static_cast<std::size_t>(tensor.storage_offset()));
  if (bytes > tensor.storage().nbytes()) resize_storage(tensor.storage(), bytes);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
}

// The argument that an operator returns, as in-place operators and those with `out` do.
const IValue& written_argument(const c10::OperatorHandle& op, const c10::Argument& result, const Values& values) {
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (is_written(arguments[i]) && *arguments[i].alias_info() == *result.alias_info()) return values[i];
  }
  TORCH_CHECK(false, op.operator_name(), ": the schema does not say which argument it returns.");
}

// Gives `out` arguments the size of the result.
void resize_outputs(const c10::OperatorHandle& op, const Values& values) {
  const auto& schema = op.schema();
  const bool has_out = std::any_of(schema.arguments().begin(), schema.arguments().end(),
                                   [](const auto& argument) { return argument.is_out(); });
  if (!has_out) return;
  const auto layouts = result_layouts(op, values);
  for (std::size_t i = 0; i < schema.returns().size(); ++i) {
    const auto& result = written_argument(op, schema.returns()[i], values);
    if (!result.isTensor() || !on_device(result.toTensor())) continue;
    const auto& layout = layouts[i].tensors.front();
    if (layout && layout->sizes != result.toTensor().sizes()) resize(result.toTensor(), layout->sizes, layout->strides);
  }
}

void copy_result(const IValue& from, const IValue& to) {
  if (to.isTensor() && to.toTensor().defined()) to.toTensor().copy_(from.toTensor());
  if (!to.isTensorList()) return;
  const auto targets = to.toTensorVector();
  const auto sources = from.toTensorVector();
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets[i].defined()) targets[i].copy_(sources[i]);
  }
}

Values pop_arguments(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto count = op.schema().arguments().size();
  Values values(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  torch::jit::drop(*stack, count);
  return values;
}

// The host must know the result.
void run_synchronously(const c10::OperatorHandle& op, const Values& values, const at::Device& device,
                       torch::jit::Stack* stack) {
  auto& stream = current_stream(device.index());
  count_operation();
  count_host_synchronization(text(op.schema().name()), &stream);
  stream.wait_until_idle();
  throw_device_error(device.index());
  auto arguments = kernel_arguments(op, values, device);
  const auto& schema = op.schema();
  for (std::size_t i = 0; i < values.size(); ++i) {  // of a size that is not known yet
    if (schema.arguments()[i].is_out()) arguments[i] = at::empty({0}, values[i].toTensor().options().device(at::kCPU));
  }
  const auto results = call(op, arguments);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].isTensor()) {
      stack->push_back(results[i]);
      continue;
    }
    const auto layout = layout_of(results[i]);
    auto result =
        is_written(schema.returns()[i]) ? written_argument(op, schema.returns()[i], values) : allocate(layout, device);
    const auto& shape = *layout.tensors.front();
    if (result.toTensor().sizes() != shape.sizes) resize(result.toTensor(), shape.sizes, shape.strides);
    stream.launch({schema.name(), [from = results[i], to = IValue(kernel_view(result.toTensor()))] {
                     const KernelScope scope;
                     copy_result(from, to);
                   }});
    stack->push_back(std::move(result));
  }
}

// Whether the CPU's kernel resizes its output for a while, which the fake GPU's memory does not allow.
bool resizes_outputs(const c10::OperatorHandle& op) {
  return op.schema().name() == "aten::mse_loss" && op.schema().overload_name() == "out";
}

void run_with_own_outputs(const c10::OperatorHandle& op, Values arguments) {
  const auto written = arguments;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (op.schema().arguments()[i].is_out()) arguments[i] = at::empty({0}, written[i].toTensor().options());
  }
  call(op, arguments);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (op.schema().arguments()[i].is_out()) copy_result(arguments[i], written[i]);
  }
}

void run_asynchronously(const c10::OperatorHandle& op, const Values& values, const at::Device& device,
                        torch::jit::Stack* stack) {
  auto& stream = current_stream(device.index());
  check_host_tensors(op, values, stream);
  resize_outputs(op, values);
  const auto& returns = op.schema().returns();
  std::vector<ResultLayout> layouts;
  Values results;
  Values targets;  // None for what the kernel writes itself
  for (std::size_t i = 0; i < returns.size(); ++i) {
    if (is_written(returns[i])) {
      results.push_back(written_argument(op, returns[i], values));
      targets.emplace_back();
      continue;
    }
    TORCH_CHECK(returns[i].alias_info() == nullptr, "The fake GPU has no kernel for the view ", op.operator_name(),
                ". Add it to operators.cpp.");
    if (layouts.empty()) layouts = result_layouts(op, values);
    results.push_back(allocate(layouts[i], device));
    targets.push_back(map_tensors(results.back(), kernel_view));
  }
  count_operation();
  const auto run = [op, arguments = kernel_arguments(op, values, device), targets] {
    const KernelScope scope;
    if (resizes_outputs(op)) return run_with_own_outputs(op, arguments);
    const auto computed = call(op, arguments);
    for (std::size_t i = 0; i < targets.size(); ++i) copy_result(computed[i], targets[i]);
  };
  stream.launch({op.schema().name(), run});
  for (auto& result : results) stack->push_back(std::move(result));
}

// Whether the host must know data to know the result.
bool must_wait(const c10::OperatorHandle& op) {
  static const std::set<std::string> kNames = {"aten::_unique",
                                               "aten::_unique2",
                                               "aten::bincount",
                                               "aten::masked_select",
                                               "aten::nonzero",
                                               "aten::nonzero_numpy",
                                               "aten::unique_consecutive",
                                               "aten::unique_dim",
                                               "aten::unique_dim_consecutive"};
  const auto& schema = op.schema();
  if (kNames.contains(schema.name())) return true;
  if (schema.name() == "aten::repeat_interleave") return schema.overload_name() == "Tensor";
  return std::any_of(schema.returns().begin(), schema.returns().end(), [](const auto& result) {
    return !result.type()->isSubtypeOf(*c10::TensorType::get()) && result.type()->kind() != c10::TypeKind::ListType;
  });
}

void run_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto values = pop_arguments(op, stack);
  const auto device = device_of(op, values);
  const c10::DeviceGuard on_this_device(device);
  const KernelScope scope;
  must_wait(op) ? run_synchronously(op, values, device, stack) : run_asynchronously(op, values, device, stack);
}

// One operation for a list of tensors, unless they are on several devices: then one for each.
void run_foreach(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto count = op.schema().arguments().size();
  const Values values(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  std::optional<at::Device> first;
  bool one_device = true;
  for_each_tensor(values, [&](const at::Tensor& tensor) {
    if (!first) first = tensor.device();
    one_device = one_device && tensor.device() == *first;
  });
  if (one_device) return run_operator(op, stack);
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

// As cudaMemcpyAsync: a copy from pageable memory takes the source along at the call, one to pageable memory waits.
at::Tensor& copy_(at::Tensor& target, const at::Tensor& source, bool non_blocking) {
  const KernelScope scope;
  if (target.is_same(source)) return target;
  const auto from = source.expand(target.sizes());
  const auto device = on_device(source) ? source.device() : target.device();
  auto& stream = current_stream(device.index());
  const bool direct = from.is_contiguous() && target.is_contiguous() && from.scalar_type() == target.scalar_type();

  const bool between_devices = on_device(source) && on_device(target) && source.device() != target.device();
  auto& target_stream = between_devices ? current_stream(target.device().index()) : stream;
  if (between_devices) stream.wait_for(target_stream.mark());

  at::Tensor kernel_source = from;
  if (on_device(source)) {
    kernel_source = kernel_view(from);
  } else if (non_blocking && direct && is_pinned(source.const_data_ptr())) {
    kernel_source = at::from_blob(const_cast<void*>(from.const_data_ptr()), from.sizes(), from.strides(),
                                  at::TensorOptions(from.dtype()));
  } else {
    kernel_source = host_clone(source).expand(target.sizes());
  }
  const bool to_pinned =
      non_blocking && target.is_contiguous() && target.is_cpu() && is_pinned(target.const_data_ptr());
  const auto kernel_target = on_device(target) ? kernel_view(target)
                                               : at::from_blob(target.mutable_data_ptr(), target.sizes(),
                                                               target.strides(), at::TensorOptions(target.dtype()));
  count_operation();
  stream.launch({"aten::copy_", [kernel_source, kernel_target] {
                   const KernelScope running;
                   kernel_target.copy_(kernel_source);
                 }});
  if (between_devices) target_stream.wait_for(stream.mark());
  if (source.is_cpu()) record_pinned_use(source.const_data_ptr(), stream);
  if (target.is_cpu()) record_pinned_use(target.const_data_ptr(), stream);
  const bool waits = target.is_cpu() ? !to_pinned : source.is_cpu() && !non_blocking;
  if (waits) {
    count_host_synchronization(text("a copy from ", source.device().str(), " to ", target.device().str()), &stream);
    stream.wait_until_idle();
    throw_device_error(device.index());
  }
  return target;
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout> /*layout*/,
                 std::optional<at::Device> device, std::optional<bool> /*pin_memory*/,
                 std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard on_this_device(device);
  return at::detail::empty_generic(sizes, &device_allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                         std::optional<at::Layout> /*layout*/, std::optional<at::Device> device,
                         std::optional<bool> /*pin_memory*/) {
  const c10::OptionalDeviceGuard on_this_device(device);
  return at::detail::empty_strided_generic(sizes, strides, &device_allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(type));
}

const at::Tensor& resize_(const at::Tensor& tensor, at::IntArrayRef sizes, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard on_this_device(tensor.device());
  if (tensor.sizes() != sizes) {
    // The strides of a new tensor: those of a contiguous one.
    resize(tensor, sizes, at::empty(sizes, tensor.options().device(at::kMeta)).strides());
  }
  if (format) tensor.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return tensor;
}

at::Tensor& set_to_nothing(at::Tensor& tensor) {
  const c10::Storage none(c10::Storage::use_byte_size_t(), 0, &device_allocator(), /*resizable=*/true);
  return at::native::set_storage_cpu_(tensor, none, 0, {0}, {});
}

// LibTorch's own answer is no for this type of device, and Module::to() needs a yes.
bool has_compatible_shallow_copy_type(const at::Tensor& tensor, const at::Tensor& from) {
  return tensor.layout() == at::kStrided && from.layout() == at::kStrided;
}

void record_stream(at::Tensor& tensor, c10::Stream stream) {
  record_use(tensor.storage().data_ptr(), find_stream(stream));
}

torch::CppFunction boxed(void (*kernel)(const c10::OperatorHandle&, torch::jit::Stack*)) {
  class Kernel final : public c10::OperatorKernel {
   public:
    explicit Kernel(void (*run)(const c10::OperatorHandle&, torch::jit::Stack*)) : run_(run) {}
    void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
      run_(op, stack);
    }

   private:
    void (*run_)(const c10::OperatorHandle&, torch::jit::Stack*);
  };
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(kernel));
}

// Whether a CPU has a kernel of its own for an operator that other devices compose of several ones.
bool has_cpu_kernel_beside_composite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
}

bool returns_fresh_tensors(const c10::OperatorHandle& op) {
  const auto& returns = op.schema().returns();
  return !must_wait(op) && std::all_of(returns.begin(), returns.end(), [](const auto& result) {
    return result.alias_info() == nullptr || result.alias_info()->isWrite();
  });
}

}  // namespace

at::Tensor kernel_view(const at::Tensor& tensor) {
  return at::from_blob(kernel_address(tensor.const_data_ptr()), tensor.sizes(), tensor.strides(),
                       at::TensorOptions(tensor.dtype()));
}

void register_operators() {
  // The registrations last as long as the library objects: to the end of the process.
  static auto* kernels =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  auto& own = *kernels;
  own.impl("empty.memory_format", TORCH_FN(empty));
  own.impl("empty_strided", TORCH_FN(empty_strided));
  own.impl("resize_", TORCH_FN(resize_));
  own.impl("copy_", TORCH_FN(copy_));
  own.impl("record_stream", TORCH_FN(record_stream));
  own.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
  own.impl("set_", TORCH_FN(set_to_nothing));
  own.impl("set_.source_Storage", TORCH_FN(static_cast<at::Tensor& (*)(at::Tensor&, at::Storage)>(at::native::set_)));
  own.impl("set_.source_Storage_storage_offset", TORCH_FN(at::native::set_storage_cpu_));
  own.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  own.impl("is_set_to", TORCH_FN(at::native::is_set_to));
  own.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  own.impl("view", TORCH_FN(at::native::view));
  own.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  own.impl("unfold", TORCH_FN(at::native::unfold));
  own.impl("convolution", boxed(run_operator));
  own.impl("convolution_backward", boxed(run_operator));

  const std::set<std::string> kOwn = {"aten::copy_", "aten::resize_", "aten::set_", "aten::empty"};
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !name.name.starts_with("aten::") || kOwn.contains(name.name)) continue;
    const auto key = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    if (name.name.starts_with("aten::_foreach_")) {
      own.impl(key.c_str(), boxed(run_foreach));
    } else if (has_cpu_kernel_beside_composite(*op) && returns_fresh_tensors(*op)) {
      own.impl(key.c_str(), boxed(run_operator));
    }
  }
  static auto* others =
      new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  others->fallback(boxed(run_operator));
}

}  // namespace libtrain::test::fake
