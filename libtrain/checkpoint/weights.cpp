#include <libtrain/checkpoint/weights.hpp>

#include <algorithm>
#include <cstddef>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/detail/visible_names.hpp>
#include <libtrain/checkpoint/detail/weights_file.hpp>
#include <libtrain/checkpoint/safetensors.hpp>

namespace libtrain {

namespace {

constexpr std::size_t kNamesInMessage = 10;

struct StateTensor {
  std::string name;
  at::Tensor tensor;
};

// A module registers undefined ones for options that are off, such as a bias.
std::vector<StateTensor> module_state(const torch::nn::Module& module) {
  std::vector<StateTensor> state;
  for (const auto& tensors : {module.named_parameters(), module.named_buffers()}) {
    for (const auto& item : tensors) {
      if (item.value().defined()) state.push_back({item.key(), item.value()});
    }
  }
  return state;
}

bool begins_with_one_of(const std::string& name, const std::vector<std::string>& beginnings) {
  return std::ranges::any_of(beginnings, [&](const auto& beginning) { return name.starts_with(beginning); });
}

// Of a BatchNorm. Module::to(dtype) makes it a floating-point number, unlike PyTorch's in Python.
bool is_batch_count(std::string_view name) {
  return name.ends_with("num_batches_tracked");
}

// How a tensor of the file differs from the module's; empty if it can be copied.
std::string difference_from(const std::string& path, const TensorInfo& stored, const at::Tensor& tensor) {
  if (!std::ranges::equal(stored.shape, tensor.sizes())) {
    return text("shape [", join(stored.shape, ", "), "] in the file, [", join(tensor.sizes(), ", "), "] in the module");
  }
  const auto type = detail::scalar_type(path, stored);
  const bool converts = at::isFloatingType(type) && at::isFloatingType(tensor.scalar_type());
  if (type == tensor.scalar_type() || converts || is_batch_count(stored.name)) return "";
  return text("dtype ", type, " in the file, ", tensor.scalar_type(), " in the module");
}

// "3 missing (a, b, c)", at most kNamesInMessage of them.
void append_names(std::string& message, const std::vector<std::string>& names, std::string_view what) {
  if (names.empty()) return;
  const std::span shown{names.data(), std::min(names.size(), kNamesInMessage)};
  message += text(message.empty() ? "" : "; ", names.size(), " ", what, " (", join(shown, ", "),
                  shown.size() < names.size() ? text(", and ", names.size() - shown.size(), " more") : "", ")");
}

// Names in the file that are names in the module behind the same beginning, such as "module.", are the usual mistake.
std::string advice(const std::vector<std::string>& missing, const std::vector<std::string>& unexpected) {
  for (const auto& found : std::span{unexpected.data(), std::min(unexpected.size(), kNamesInMessage)}) {
    for (const auto& name : missing) {
      if (found.ends_with("." + name)) {
        const auto beginning = found.substr(0, found.size() - name.size());
        return text("The file's names seem to begin with '", beginning,
                    "': set 'prefix' to it, or remove it with libtrain-checkpoint convert --prefix.");
      }
      if (name.ends_with("." + found)) {
        const auto beginning = name.substr(0, name.size() - found.size());
        return text("The file's names seem to lack '", beginning,
                    "': add it with 'rename', or with libtrain-checkpoint convert --rename.");
      }
    }
  }
  return "Build the model that the file was saved from, change names with 'rename', or say with 'may_be_missing' and "
         "'may_be_unexpected' what may differ.";
}

struct Copy {
  std::size_t index;  // in the file
  at::Tensor to;
};

// What is to be copied, once all names and shapes have been checked.
class Plan {
 public:
  Plan(const detail::WeightsFile& file, const std::string& path, const LoadWeightsOptions& options)
      : file_(file),
        path_(path),
        options_(options),
        left_(detail::visible_names(file.tensors(), path, options.prefix, options.rename)) {}

  void match(const std::vector<StateTensor>& state) {
    std::set<const void*> copied;  // tensors that have a name in the file
    std::vector<StateTensor> absent;
    for (const auto& [name, tensor] : state) {
      const auto found = left_.find(name);
      const auto differs = found == left_.end() ? "" : difference_from(path_, file_.tensors()[found->second], tensor);
      if (found != left_.end() && differs.empty()) {
        copies.push_back({found->second, tensor});
        copied.insert(tensor.unsafeGetTensorImpl());
        result.loaded.push_back(name);
        left_.erase(found);
      } else if (differs.empty()) {
        absent.push_back({name, tensor});
      } else if (begins_with_one_of(name, options_.may_be_missing)) {
        result.missing.push_back(name);
        result.unexpected.push_back(name);
        left_.erase(found);
      } else {
        different_.push_back(text(name, ": ", differs));
        left_.erase(found);
      }
    }
    for (const auto& [name, tensor] : absent) {
      if (copied.contains(tensor.unsafeGetTensorImpl())) {
        result.loaded.push_back(name);
      } else if (begins_with_one_of(name, options_.may_be_missing)) {
        result.missing.push_back(name);
      } else if (counts_batches_of_loaded_statistics(name)) {
        zeroed.push_back(tensor);
        result.loaded.push_back(name);
      } else {
        missing_.push_back(name);
      }
    }
    for (const auto& [name, index] : left_) {
      (begins_with_one_of(name, options_.may_be_unexpected) ? result.unexpected : unexpected_).push_back(name);
    }
    require_fit();
    std::ranges::sort(copies, {}, &Copy::index);
  }

  std::vector<Copy> copies;
  std::vector<at::Tensor> zeroed;
  LoadedWeights result;

 private:
  // Of BatchNorm. Python's reads files of PyTorch before 0.4.1, torchvision's older weights among them, as with 0.
  bool counts_batches_of_loaded_statistics(const std::string& name) const {
    constexpr std::string_view kCount = "num_batches_tracked";
    if (!name.ends_with(kCount)) return false;
    return std::ranges::find(result.loaded, name.substr(0, name.size() - kCount.size()) + "running_mean") !=
           result.loaded.end();
  }

  void require_fit() const {
    std::string names;
    append_names(names, missing_, "missing");
    append_names(names, unexpected_, "unexpected");
    append_names(names, different_, "different");
    if (names.empty()) return;
    throw UsageError(text("Weights file '", path_, "' does not fit the module, which is unchanged: ", names, ". ",
                          advice(missing_, unexpected_)));
  }

  const detail::WeightsFile& file_;
  const std::string& path_;
  const LoadWeightsOptions& options_;
  std::map<std::string, std::size_t> left_;
  std::vector<std::string> missing_;
  std::vector<std::string> unexpected_;
  std::vector<std::string> different_;
};

}  // namespace

std::map<std::string, at::Tensor> read_tensors(const std::string& path) {
  const auto file = detail::open_weights_file(path);
  std::map<std::string, at::Tensor> tensors;
  for (std::size_t index = 0; index < file->tensors().size(); ++index) {
    tensors.emplace(file->tensors()[index].name, file->read(index));
  }
  return tensors;
}

LoadedWeights load_weights(torch::nn::Module& module, const std::string& path, const LoadWeightsOptions& options) {
  const auto file = detail::open_weights_file(path);
  Plan plan{*file, path, options};
  plan.match(module_state(module));
  const at::NoGradGuard no_grad;
  for (const auto& [index, to] : plan.copies) file->copy_to(index, to);
  for (auto& count : plan.zeroed) count.zero_();
  at::autocast::clear_cache();  // which may have casts of the former weights
  return std::move(plan.result);
}

void save_weights(const torch::nn::Module& module, const std::string& path,
                  const std::map<std::string, std::string>& metadata) {
  const auto state = module_state(module);
  std::vector<TensorInfo> infos;
  const auto type_of = [](const StateTensor& each) {
    return is_batch_count(each.name) ? at::kLong : each.tensor.scalar_type();
  };
  for (const auto& each : state) {
    infos.push_back(
        {.name = each.name, .type = detail::stored_type(each.name, type_of(each)), .shape = each.tensor.sizes().vec()});
  }
  at::Tensor current;  // until the next one
  const auto bytes_of = [&](std::size_t index) {
    current = state[index].tensor.detach().cpu();
    // In float16, a large count is infinite.
    if (is_batch_count(state[index].name)) current = current.to(at::kDouble).nan_to_num(0, 0, 0).to(at::kLong);
    current = current.resolve_conj().resolve_neg().contiguous();
    return std::as_bytes(std::span{static_cast<const char*>(current.const_data_ptr()), current.nbytes()});
  };
  write_safetensors(path, infos, bytes_of, metadata);
}

}  // namespace libtrain
