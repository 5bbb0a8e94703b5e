// usage: mlflow_program run <folder of a model> <steps>    tracks a run, registers the model, prints the run
//        mlflow_program fetch <version> <folder>         fetches the model, prints its version
//
// The server is that of MLFLOW_TRACKING_URI. For mlflow_peer_test.py.

#include <chrono>
#include <cmath>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include <libtrain/base/environment.hpp>
#include <libtrain/observe/mlflow.hpp>

namespace {

void track(const std::string& model, int steps) {
  libtrain::MlflowRun run{libtrain::Environment::of_process(),
                          {.run_name = "from C++", .end_timeout = std::chrono::minutes{2}}};
  run.log_params({{"lr", "0.1"}, {"model", std::string(6000, 'm')}, {"odd:name", "x"}});
  run.log_tags({{"vm", "Grüße"}});
  for (int step = 0; step < steps; ++step) {
    const libtrain::Metric metric{"loss", 1.0 / (1 + step)};
    run.log_metrics("step", step, {&metric, 1});
  }
  const std::vector<libtrain::Metric> last{{"nan", std::nan("")}, {"infinite", -HUGE_VAL}};
  run.log_metrics("evaluation", steps, last);
  run.log_text("note", steps, "a text");
  run.log_artifact(model, "model");
  run.register_model("birds", "model");
  run.end(libtrain::RunStatus::finished);
  std::cout << run.run_id().value_or("") << '\n';
}

}  // namespace

int main(int count, char** words) try {
  const std::vector<std::string> arguments{words + 1, words + count};
  if (arguments.size() == 3 && arguments[0] == "run") {
    track(arguments[1], std::stoi(arguments[2]));
  } else if (arguments.size() == 3 && arguments[0] == "fetch") {
    std::cout << libtrain::fetch_model(libtrain::Environment::of_process(), "birds", arguments[2], arguments[1])
              << '\n';
  } else {
    return 2;
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << "libtrain: error: " << error.what() << '\n';
  return 3;
}
