// Evaluates detections by COCO's rules, with the numbers of pycocotools:
//
//   coco_evaluate --ground-truth instances_val2017.json --detections results.json --type segm
//   coco_evaluate --ground-truth az://container/instances.json --detections results.json --json --per-category
//
// The files may be local or URIs of object stores. Without LibTorch, in one process.

#include <algorithm>
#include <cstddef>
#include <iomanip>
#include <iostream>
#include <map>
#include <string>
#include <thread>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/data/coco_evaluation.hpp>
#include <libtrain/data/formats/coco.hpp>
#include <libtrain/data/storage/open_storage.hpp>

#include "../without_ranks.hpp"

namespace lt = libtrain;

namespace {

constexpr int kMaxThreads = 1024;

const std::map<std::string, lt::data::CocoIouType> kTypes{{"bbox", lt::data::CocoIouType::boxes},
                                                          {"segm", lt::data::CocoIouType::masks}};

struct Options {
  std::string ground_truth = {};
  std::string detections = {};
  std::string type = "bbox";
  int threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxThreads);
  bool as_json = false;
  bool per_category = false;
  bool skip_malformed = false;
};

void print_json(const lt::data::CocoEvaluation& found, const lt::data::CocoAnnotations& truth, bool per_category) {
  nlohmann::ordered_json object{{"stats", found.stats}};
  if (per_category) {
    auto& list = object["categories"] = nlohmann::ordered_json::array();
    for (std::size_t number = 0; number < truth.categories.size(); ++number) {
      const auto& category = truth.categories[number];
      list.push_back({{"id", category.id}, {"name", category.name}, {"stats", found.category_stats[number]}});
    }
  }
  std::cout << object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

void print_text(const lt::data::CocoEvaluation& found, const lt::data::CocoAnnotations& truth, bool per_category) {
  std::cout << lt::data::coco_summary(found.stats);
  if (!per_category) return;
  std::size_t width = 8;
  for (const auto& category : truth.categories) width = std::max(width, category.name.size());
  const auto name_width = static_cast<int>(width);
  std::cout << '\n' << std::left << std::setw(name_width) << "category" << "      AP    AP50    AP75\n" << std::fixed;
  for (std::size_t number = 0; number < truth.categories.size(); ++number) {
    std::cout << std::left << std::setw(name_width) << truth.categories[number].name << std::right;
    for (const std::size_t each : {0, 1, 2}) {
      std::cout << std::setw(8) << std::setprecision(3) << found.category_stats[number][each];
    }
    std::cout << '\n';
  }
}

void evaluate(const Options& options) {
  const lt::data::CocoOptions reading{
      .use = lt::data::CocoUse::evaluation,
      .malformed = options.skip_malformed ? lt::data::CocoMalformed::leave_out : lt::data::CocoMalformed::refuse};
  const auto truth = lt::data::read_coco(*lt::data::open_file(options.ground_truth), reading);
  const auto detections = lt::data::read_coco_results(*lt::data::open_file(options.detections), truth, reading);
  const auto found =
      lt::data::evaluate_coco(truth, detections, {.type = kTypes.at(options.type), .threads = options.threads});
  (options.as_json ? print_json : print_text)(found, truth, options.per_category);
  if (!std::cout.flush()) throw lt::EnvironmentError("Cannot write the results. Check the space on the disk.");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Evaluates detections by COCO's rules, with the numbers of pycocotools."};
  Options options;
  app.add_option("--ground-truth", options.ground_truth, "COCO instances file")->required();
  app.add_option("--detections", options.detections, "COCO results file of the same images")->required();
  app.add_option("--type", options.type, "What overlaps: bbox or segm (masks)")
      ->capture_default_str()
      ->check(CLI::IsMember(kTypes));
  app.add_option("--threads", options.threads, "Threads (default: as many as there are cores)")
      ->check(CLI::Range(1, kMaxThreads));
  app.add_flag("--json", options.as_json, "Print an object whose key stats has the 12 numbers, with all their digits");
  app.add_flag("--per-category", options.per_category, "Print the numbers of each category, too; -1: no ground truth");
  app.add_flag("--skip-malformed", options.skip_malformed,
               "Leave out and count malformed annotations and results instead of ending with an error");
  return run_without_ranks(app, argc, argv, "coco_evaluate", [&] { evaluate(options); });
}
