#include <iostream>

#include <libtrain/base/error.hpp>

#include <tools/common/tool.hpp>
#include <tools/inspect/inspect.hpp>
#include <tools/inspect/inspect_options.hpp>
#include <tools/inspect/report.hpp>

// libtrain-inspect: describes a data set and finds damaged samples.

int main(int argc, char** argv) {
  return libtrain::tools::run_tool("libtrain-inspect", [&] {
    const auto line = libtrain::inspect::read_command_line(argc, argv);
    if (line.help) {
      std::cout << *line.help;
      return libtrain::ExitCode::success;
    }
    const auto report = libtrain::inspect::inspect(line.options);
    std::cout << (line.options.as_json ? to_json_line(report) : to_text(report));
    const bool is_sound = report.bad_samples.empty() && report.refusal.empty();
    return is_sound ? libtrain::ExitCode::success : libtrain::ExitCode::environment;
  });
}
