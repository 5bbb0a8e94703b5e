#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <libtrain/checkpoint/detail/input_file.hpp>
#include <libtrain/checkpoint/detail/state_dict_pickle.hpp>
#include <libtrain/checkpoint/detail/zip_archive.hpp>

namespace libtrain::detail {

/// A file of Python's `torch.save` (PyTorch 1.6 or later): a zip archive of a pickle, which says what the tensors are,
/// and of their storages. Only the pickle is read when the file is opened, and nothing is executed
/// (state_dict_pickle.hpp). Immutable: any thread may read, several at once.
class PthFile {
 public:
  /// Throws EnvironmentError that names the file and what is wrong with it: a damaged or truncated archive, one of
  /// TorchScript, one of a big-endian machine, a pickle that needs code, a storage that is missing or of another size.
  explicit PthFile(std::string path);

  PthFile(const PthFile&) = delete;  // the archive refers to the file
  PthFile& operator=(const PthFile&) = delete;

  const std::string& path() const { return file_.path(); }

  /// Ordered as in the file's dicts. Tensors may share a storage.
  const std::vector<PickledTensor>& tensors() const { return tensors_; }

  /// Reads the storage of one of tensors() into `to`, which has `tensor.storage_bytes` bytes. Throws EnvironmentError
  /// if its CRC-32 is another one (unless the writer computed none), or as InputFile::read_at.
  void read_storage(const PickledTensor& tensor, std::span<std::byte> to) const;

 private:
  std::string record_name(const std::string& name) const { return folder_ + name; }
  void read_tensors();

  InputFile file_;
  ZipArchive archive_;
  std::string folder_;  // in the archive, with the slash
  std::vector<PickledTensor> tensors_;
};

}  // namespace libtrain::detail
