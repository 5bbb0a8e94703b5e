// The main program of a fuzz target as a test, with any compiler: runs the target on files, and on damaged copies of
// them.
//
//   tar_fuzz [--mutations COUNT] [FILE_OR_FOLDER]...
//   tar_fuzz --write-seeds FOLDER
//
// Without files it takes the target's seeds; it writes them for libFuzzer to begin with. A failure ends the process;
// the last file and seed that were printed are those to repeat.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <tests/data/formats/mutation.hpp>
#include <tests/fuzz/target.hpp>

namespace {

namespace fs = std::filesystem;

struct Input {
  std::string name = {};
  std::string bytes = {};
  bool must_be_read = false;
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

std::vector<Input> seeds() {
  std::vector<Input> inputs{{"nothing", ""}};
  for (const std::string& bytes : fuzz_seeds())
    inputs.push_back({"seed " + std::to_string(inputs.size()), bytes, true});
  return inputs;
}

void write_seeds(const fs::path& folder) {
  for (const Input& seed : seeds()) {
    std::ofstream file(folder / seed.name, std::ios::binary);
    if (file.write(seed.bytes.data(), static_cast<std::streamsize>(seed.bytes.size())).flush()) continue;
    std::cerr << "cannot write to " << folder << '\n';
    std::exit(3);
  }
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
    } else if (std::string(argv[i]) == "--write-seeds" && i + 1 < argc) {
      write_seeds(argv[++i]);
      return 0;
    } else if (fs::is_directory(argv[i])) {
      for (const auto& entry : fs::directory_iterator(argv[i])) inputs.push_back(load(entry.path()));
    } else {
      inputs.push_back(load(argv[i]));
    }
  }
  if (inputs.empty()) inputs = seeds();

  for (const Input& input : inputs) {
    std::cout << input.name << std::endl;
    const auto read_before = read_inputs;
    run(input.bytes);
    if (input.must_be_read && read_inputs == read_before) {
      std::cerr << input.name << " is refused: it is not of the format that the target reads\n";
      return 1;
    }
    for (std::uint64_t seed = 0; seed < mutations; ++seed) {
      if (seed % 1000 == 0) std::cout << input.name << " from seed " << seed << " on" << std::endl;
      run(libtrain::data::Mutator(seed).mutate(input.bytes));
    }
  }
  std::cout << inputs.size() << " inputs, each as it is and damaged " << mutations << " times\n";
}
