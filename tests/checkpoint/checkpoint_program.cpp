// Executes commands from standard input, one a line, for tests that need processes. Each is answered by one line, which
// begins with "ok" or, for an EnvironmentError or UsageError, with "error".
//
//   open ROOT RUN KEEP     makes the CheckpointWriter; RUN is its id, or several separated by commas
//   begin STEP             answers with the name of the folder
//   join ROOT BEGUN STEP   instead of the two: another rank of the run
//   write NAME BYTES       a file of the begun checkpoint; answers with its entry
//   half NAME BYTES        the first half of such a file, which stays open
//   commit [ENTRIES]       with the entries of this process and, of another rank, what `write` answered
//   abandon
//   save STEP BYTES        begin, two files, commit
//   mark STEP
//   show ROOT              answers with the steps of undamaged checkpoints, "newest", its step, and "damaged", how many
//   verify ROOT            answers with the steps of all checkpoints, of any run, which must be undamaged

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <libtrain/base/text.hpp>
#include <libtrain/checkpoint/checkpoint_file_writer.hpp>
#include <libtrain/checkpoint/checkpoint_folder.hpp>
#include <libtrain/checkpoint/checkpoint_writer.hpp>

#include <tests/checkpoint/checkpoint_bytes.hpp>

namespace {

using namespace libtrain;
using test::checkpoint_bytes;

class Program {
 public:
  std::string execute(const std::string& line) {
    std::istringstream words{line};
    std::string command;
    words >> command;
    if (command == "open") {
      std::string root, runs;
      int keep = 0;
      words >> root >> runs >> keep;
      std::vector<std::string> ids;
      std::istringstream list{runs};
      for (std::string id; std::getline(list, id, ',');) ids.push_back(id);
      writer_ = std::make_unique<CheckpointWriter>(root, ids, CheckpointRetention{.last = keep});
      root_ = root;
      return "";
    }
    if (command == "begin") {
      words >> step_;
      entries_.clear();
      return begun_ = writer().begin(step_);
    }
    if (command == "join") {
      words >> root_ >> begun_ >> step_;
      return "";
    }
    if (command == "write" || command == "half") {
      std::string name;
      std::size_t bytes = 0;
      words >> name >> bytes;
      return write(name, bytes, command == "half");
    }
    if (command == "commit") {
      std::string others;
      std::getline(words >> std::ws, others);
      return commit(others);
    }
    if (command == "abandon") {
      writer().abandon();
      return "";
    }
    if (command == "save") {
      std::size_t bytes = 0;
      words >> step_ >> bytes;
      return save(bytes);
    }
    if (command == "mark") {
      words >> step_;
      writer().mark_best(step_);
      return "";
    }
    if (command == "show") {
      std::string root;
      words >> root;
      return show(root);
    }
    if (command == "verify") {
      std::string root;
      std::string steps;
      words >> root;
      for (const auto& status : list_checkpoints(root)) {
        const CheckpointFolder checkpoint{status.folder};
        checkpoint.verify();
        steps += text(status.step, " ");
      }
      return steps;
    }
    throw std::runtime_error("unknown command: " + line);
  }

 private:
  CheckpointWriter& writer() const {
    if (!writer_) throw UsageError("open has failed.");
    return *writer_;
  }

  std::string write(const std::string& name, std::size_t bytes, bool is_half) {
    auto file = std::make_unique<CheckpointFileWriter>(root_, begun_, name);
    const auto content = checkpoint_bytes(step_, name, bytes);
    if (is_half) {
      file->write(std::string_view{content}.substr(0, bytes / 2));
      open_files_.push_back(std::move(file));
      return "";
    }
    file->write_tensor("first", std::string_view{content}.substr(0, bytes / 3));
    file->write_tensor("second", std::string_view{content}.substr(bytes / 3));
    entries_.push_back(file->finish());
    return to_text(std::vector{entries_.back()});
  }

  std::string commit(const std::string& others) {
    CheckpointManifest manifest{.step = step_, .files = entries_};
    if (!others.empty()) {
      for (auto& entry : parse_checkpoint_files(others)) manifest.files.push_back(std::move(entry));
    }
    entries_.clear();
    return writer().commit(std::move(manifest)).string();
  }

  std::string save(std::size_t bytes) {
    entries_.clear();
    begun_ = writer().begin(step_);
    try {
      write("model.bin", bytes, false);
      write("optimizer.bin", 2 * bytes, false);
    } catch (...) {
      writer().abandon();
      throw;
    }
    return commit("");
  }

  static std::string show(const std::string& root) {
    std::string answer;
    int damaged = 0;
    for (const auto& status : list_checkpoints(root)) {
      if (is_undamaged(status)) {
        answer += text(status.step, " ");
      } else {
        ++damaged;
      }
    }
    const auto newest = find_newest_checkpoint(root);
    return text(answer, "newest ", newest.checkpoint ? newest.checkpoint->manifest().step : -1, " damaged ", damaged);
  }

  // Compares the bytes with what was to be written, not only with the checksums.
  static bool is_undamaged(const CheckpointStatus& status) {
    if (!status.is_complete()) return false;
    const CheckpointFolder checkpoint{status.folder};
    const auto& files = checkpoint.manifest().files;
    return !files.empty() && std::all_of(files.begin(), files.end(), [&](const auto& file) {
      return checkpoint.read(file.name) == checkpoint_bytes(status.step, file.name, file.bytes);
    });
  }

  std::unique_ptr<CheckpointWriter> writer_;
  std::string root_;
  std::string begun_;
  std::int64_t step_ = 0;
  std::vector<CheckpointFile> entries_;
  std::vector<std::unique_ptr<CheckpointFileWriter>> open_files_;
};

}  // namespace

int main() {
  Program program;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      const auto answer = program.execute(line);
      std::cout << "ok " << answer << std::endl;
    } catch (const Error& error) {
      std::cout << "error " << error.what() << std::endl;
    }
  }
}
