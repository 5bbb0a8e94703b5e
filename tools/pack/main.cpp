#include <iostream>

#include <libtrain/base/error.hpp>

#include <tools/common/tool.hpp>
#include <tools/pack/pack.hpp>
#include <tools/pack/pack_options.hpp>

// libtrain-pack: packs an image folder, or a split of a COCO data set, into shards.

namespace {

void print(const libtrain::pack::PackSummary& summary) {
  std::cout << "images " << summary.images << '\n'
            << "classes " << summary.classes << '\n'
            << "shards " << summary.shards << '\n'
            << "bytes read " << summary.bytes_read << '\n'
            << "bytes written " << summary.bytes_written << '\n'
            << "given restart markers " << summary.with_new_markers << '\n'
            << "resized " << summary.resized << '\n'
            << "stored unchanged " << summary.unchanged << '\n'
            << "left out as damaged " << summary.damaged << '\n'
            << "left out as unsupported " << summary.unsupported << '\n'
            << "seconds " << summary.seconds << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  return libtrain::tools::run_tool("libtrain-pack", [&] {
    const auto line = libtrain::pack::read_command_line(argc, argv);
    if (line.help) {
      std::cout << *line.help;
    } else {
      print(libtrain::pack::pack(line.options));
    }
    return libtrain::ExitCode::success;
  });
}
