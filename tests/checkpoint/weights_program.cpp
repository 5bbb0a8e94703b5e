// Reads and writes files of weights for weights_peer_test.py:
//
//   weights_program show FILE            a line of JSON for every tensor of read_tensors(): name, dtype, shape, crc32c
//   weights_program copy FROM TO         the tensors of a file, written to a safetensors file
//   weights_program check LIST           a line for every file that LIST names, a line each: "read", or the error
//   weights_program resnet50 FROM TO     load_weights() into libtrain's ResNet-50, then save_weights()
//
// Exit codes are those of libtrain.

#include <cstddef>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <libtrain/base/detail/crc32c.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/checkpoint/detail/weights_file.hpp>
#include <libtrain/checkpoint/safetensors.hpp>
#include <libtrain/checkpoint/weights.hpp>
#include <libtrain/models/resnet.hpp>

#include <tests/support/run_program.hpp>

namespace {

std::span<const std::byte> bytes_of(const at::Tensor& contiguous) {
  return {static_cast<const std::byte*>(contiguous.const_data_ptr()), contiguous.nbytes()};
}

void show(const std::string& path) {
  for (const auto& [name, tensor] : libtrain::read_tensors(path)) {
    const nlohmann::json line{{"name", name},
                              {"dtype", to_string(libtrain::detail::stored_type(name, tensor.scalar_type()))},
                              {"shape", tensor.sizes().vec()},
                              {"crc32c", libtrain::detail::crc32c(bytes_of(tensor.contiguous()))}};
    std::cout << line.dump() << '\n';
  }
}

void copy(const std::string& from, const std::string& to) {
  std::vector<libtrain::TensorInfo> infos;
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : libtrain::read_tensors(from)) {
    infos.push_back({name, libtrain::detail::stored_type(name, tensor.scalar_type()), tensor.sizes().vec()});
    tensors.push_back(tensor.contiguous());
  }
  libtrain::write_safetensors(to, infos, [&](std::size_t index) { return bytes_of(tensors[index]); });
}

void check(const std::string& list) {
  std::ifstream paths(list);
  for (std::string path; std::getline(paths, path);) {
    try {
      libtrain::read_tensors(path);
      std::cout << "read" << std::endl;
    } catch (const libtrain::EnvironmentError& error) {
      std::cout << error.what() << std::endl;
    }
  }
}

void resnet50(const std::string& from, const std::string& to) {
  auto model = libtrain::models::resnet50({.classes = 1000});
  libtrain::load_weights(*model, from);
  libtrain::save_weights(*model, to);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  return libtrain::test::run_program([&] {
    const std::string command = words.empty() ? "" : words[0];
    if (command == "show" && words.size() == 2) return show(words[1]);
    if (command == "copy" && words.size() == 3) return copy(words[1], words[2]);
    if (command == "check" && words.size() == 2) return check(words[1]);
    if (command == "resnet50" && words.size() == 3) return resnet50(words[1], words[2]);
    throw libtrain::UsageError("usage: weights_program show FILE | copy FROM TO | check LIST | resnet50 FROM TO");
  });
}
