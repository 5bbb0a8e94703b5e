// The main program of a fuzz target where the compiler has no libFuzzer: runs the target on files, and on damaged
// copies of them.
//
//   tar_fuzz [--mutations COUNT] [FILE_OR_FOLDER]...
//
// Without files it damages the samples of the tests. A failure ends the process; the last file and seed that were
// printed are those to repeat.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <tests/data/formats/deflated.hpp>
#include <tests/data/formats/mutation.hpp>
#include <tests/data/formats/shard_samples.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace fs = std::filesystem;

struct Input {
  std::string name = {};
  std::string bytes = {};
};

Input load(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file) {
    std::cerr << "cannot read " << path << '\n';
    std::exit(2);
  }
  return {path.string(), content.str()};
}

std::vector<Input> samples() {
  using namespace libtrain::data;
  return {{"sample records", sample_records()},
          {"sample records in gzip", deflated(sample_records(), Wrapping::gzip)},
          {"sample records in zlib", deflated(sample_records(), Wrapping::zlib)},
          {"sample example", sample_example(3)},
          {"sample tar", sample_tar()},
          {"sample tar in gzip", deflated(sample_tar(), Wrapping::gzip)},
          {"sample idx", sample_idx()},
          {"nothing", ""}};
}

void run(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t mutations = 0;
  std::vector<Input> inputs;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--mutations" && i + 1 < argc) {
      mutations = std::strtoull(argv[++i], nullptr, 10);
    } else if (fs::is_directory(argv[i])) {
      for (const auto& entry : fs::directory_iterator(argv[i])) inputs.push_back(load(entry.path()));
    } else {
      inputs.push_back(load(argv[i]));
    }
  }
  if (inputs.empty()) inputs = samples();

  for (const Input& input : inputs) {
    std::cout << input.name << std::endl;
    run(input.bytes);
    for (std::uint64_t seed = 0; seed < mutations; ++seed) {
      if (seed % 1000 == 0) std::cout << input.name << " from seed " << seed << " on" << std::endl;
      run(libtrain::data::Mutator(seed).mutate(input.bytes));
    }
  }
  std::cout << inputs.size() << " inputs, each as it is and damaged " << mutations << " times\n";
}
