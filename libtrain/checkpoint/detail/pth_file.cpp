#include <libtrain/checkpoint/detail/pth_file.hpp>

#include <string_view>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/detail/file_fault.hpp>

namespace libtrain::detail {

namespace {

constexpr std::uint64_t kMaxPickleBytes = 100'000'000;
constexpr std::string_view kPickle = "/data.pkl";

// Runs `read`, and names the file in its errors.
template <typename Read>
auto naming(const InputFile& file, const Read& read) {
  try {
    return read();
  } catch (const FileFault& fault) {
    throw EnvironmentError(text(file.description(), ": ", fault.sentence, ". ", fault.advice));
  }
}

// "resnet50/" if the archive has resnet50/data.pkl.
std::string folder_of(const ZipArchive& archive) {
  for (const auto& [name, record] : archive.records()) {
    if (name.ends_with(kPickle) && name.find('/') == name.size() - kPickle.size()) {
      return name.substr(0, name.size() - kPickle.size() + 1);
    }
  }
  throw FileFault{"is a zip archive, but not one of torch.save: it has no record 'data.pkl'",
                  "Give a file of torch.save or of safetensors."};
}

}  // namespace

PthFile::PthFile(std::string path)
    : file_(std::move(path), "PyTorch file"), archive_(naming(file_, [&] { return ZipArchive{file_}; })) {
  naming(file_, [&] { read_tensors(); });
}

void PthFile::read_tensors() {
  folder_ = folder_of(archive_);
  if (archive_.find(record_name("constants.pkl")) != nullptr) {
    throw FileFault{"is a TorchScript archive, which contains code",
                    "Save the state dict alone, in Python: torch.save(module.state_dict(), path)."};
  }
  if (const auto* const order = archive_.find(record_name("byteorder"))) {
    if (const auto found = archive_.read(*order, 16); found != "little") {
      throw FileFault{text("has the byte order '", found, "', and only 'little' is read"),
                      "Load and save it with Python on a little-endian machine."};
    }
  }
  tensors_ = read_state_dict_pickle(archive_.read(*archive_.find(record_name("data.pkl")), kMaxPickleBytes));
  for (const auto& tensor : tensors_) {
    const auto* const storage = archive_.find(record_name("data/" + tensor.storage));
    if (storage == nullptr) throw FileFault{text("the storage of tensor '", tensor.info.name, "' is missing")};
    if (storage->bytes != tensor.storage_bytes) {
      throw FileFault{text("expected ", tensor.storage_bytes, " bytes for the storage of tensor '", tensor.info.name,
                           "', found ", storage->bytes)};
    }
  }
}

void PthFile::read_storage(const PickledTensor& tensor, std::span<std::byte> to) const {
  naming(file_, [&] { archive_.read(*archive_.find(record_name("data/" + tensor.storage)), to); });
}

}  // namespace libtrain::detail
