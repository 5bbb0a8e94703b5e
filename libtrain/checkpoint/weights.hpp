#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <libtrain/checkpoint/tensor_info.hpp>

namespace libtrain {

/// All tensors of a file of weights on the CPU, by name: a safetensors file, or one that Python's torch.save wrote
/// (PyTorch 1.6 or later, `.pth`, `.pt`, `.bin`), recognised by its content. Loading runs no code: a `.pth` file may
/// consist of tensors, dicts, lists and plain values; a tensor of an inner dict is called "outer.inner", other values
/// are left out. Tensors that share memory in a `.pth` file share it here.
///
/// Throws EnvironmentError, one sentence and advice, for a file that is missing, damaged, truncated, in another format
/// or needs code, and for element types that LibTorch does not have.
std::map<std::string, at::Tensor> read_tensors(const std::string& path);

struct LoadWeightsOptions {
  /// Only the file's tensors whose names begin with this are seen, and without it: "model." for the model in
  /// `{"model": ..., "optimizer": ...}`.
  std::string prefix = {};

  /// Applied to the names of the file, after `prefix`: the first that fits.
  std::vector<NameChange> rename = {};

  /// Beginnings of names of the module that keep their values if the file has no tensor of that name and shape: {"fc."}
  /// for a new classifier, {""} for all.
  std::vector<std::string> may_be_missing = {};

  /// Beginnings of names of the file (after `rename`) that the module need not have.
  std::vector<std::string> may_be_unexpected = {};
};

/// What load_weights() did. Names are the module's, and those of `unexpected` the file's after `rename`.
struct LoadedWeights {
  std::vector<std::string> loaded = {};
  std::vector<std::string> missing = {};     ///< keep their values
  std::vector<std::string> unexpected = {};  ///< of the file, not used; also those of another shape than the module's
};

/// Copies the tensors of a file (as read_tensors()) into the parameters and buffers of the same names, in place: the
/// module keeps its tensors, their devices, dtypes and memory formats. A floating-point tensor is rounded to the
/// module's dtype; all others must have the module's, but for a BatchNorm's num_batches_tracked, which
/// Module::to(dtype) converts, too. Names that begin with "::" are libtrain's own numbers, and not seen. A parameter
/// that the module has under two names (tied weights) needs only one of them in the file.
///
/// Every name must be in both, with the same shape, except those that `options` allow. If not, nothing is changed, and
/// a UsageError lists the names that are missing, unexpected and of another shape or dtype. Throws as read_tensors()
/// for the file; if a tensor proves damaged while it is read, those before it have been copied.
///
/// A BatchNorm's num_batches_tracked becomes 0, as in Python, if the file has its running_mean but lacks it: files of
/// PyTorch before 0.4.1, and torchvision's weights of that age.
LoadedWeights load_weights(torch::nn::Module& module, const std::string& path, const LoadWeightsOptions& options = {});

/// Writes the defined parameters and buffers to a safetensors file, under their names in `named_parameters()` and
/// `named_buffers()`, which are those of Python's `state_dict()` for the same modules. The file is complete or absent,
/// as by write_safetensors(). At most one tensor at a time is copied, if it is on a device or not contiguous.
///
/// `metadata` is what the file says of itself; Hugging Face's transformers require the default. Throws UsageError for
/// dtypes that the format does not have, and as write_safetensors().
void save_weights(const torch::nn::Module& module, const std::string& path,
                  const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace libtrain
