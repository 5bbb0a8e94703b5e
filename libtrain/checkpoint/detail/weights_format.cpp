#include <libtrain/checkpoint/detail/weights_format.hpp>

#include <algorithm>
#include <string_view>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/detail/input_file.hpp>

namespace libtrain::detail {

namespace {

constexpr std::uint64_t kFirstBytes = 14;
// The pickle of the magic number 0x1950a86a20f9469cfc6c, torch/serialization.py, and that of a dict in early files.
constexpr std::string_view kLegacyPickle{"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14};

}  // namespace

WeightsFormat weights_format(const std::string& path) {
  const InputFile file{path, "Weights file"};
  const std::string begin = file.read(0, std::min(file.size(), kFirstBytes));
  if (begin.starts_with("PK\3\4")) return WeightsFormat::pth;
  if (begin.size() > 8 && begin[8] == '{') return WeightsFormat::safetensors;
  if (begin == kLegacyPickle) {
    throw EnvironmentError(
        text(file.description(),
             " is in torch.save's format before PyTorch 1.6, a pickle without an archive. Convert it, in "
             "Python: torch.save(torch.load(path, weights_only=True), path)."));
  }
  if (begin.starts_with('{')) {
    throw EnvironmentError(text(file.description(),
                                " is JSON, not weights. If it is the index of a model in several "
                                "files, load those files."));
  }
  if (path.ends_with(".safetensors")) return WeightsFormat::safetensors;
  throw EnvironmentError(text(file.description(),
                              begin.empty() ? " is empty" : " is neither a safetensors file nor one of torch.save",
                              ". Give the path of one."));
}

}  // namespace libtrain::detail
