// libtrain's side of task_metrics_peer_test.py: prints the metrics of the samples on standard input.
//
//   task_metrics_program classes K    lines of a label and a prediction
//   task_metrics_program several K    lines of K targets and K predictions, 0 or 1
//   task_metrics_program numbers      lines of a target and a prediction

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include <libtrain/observe/task_metrics.hpp>

#include <tests/support/run_program.hpp>

namespace lt = libtrain;

namespace {

void print(std::initializer_list<double> metrics) {
  for (const double metric : metrics) std::printf("%.17g\n", metric);
}

void count_classes(std::int64_t classes) {
  lt::ClassCounts counts(classes);
  std::int64_t label = 0;
  std::int64_t predicted = 0;
  while (std::cin >> label >> predicted) counts.add(label, predicted);
  print({counts.accuracy(), counts.f1(), counts.macro_f1(), counts.matthews()});
}

void count_several(std::int64_t classes) {
  lt::SeveralClassCounts counts(classes);
  const auto size = static_cast<std::size_t>(classes);
  std::vector<float> row(2 * size);
  for (;;) {
    for (float& value : row) std::cin >> value;
    if (!std::cin) break;
    counts.add(std::span(row).first(size), std::span(row).last(size));
  }
  print({counts.accuracy(), counts.micro_f1(), counts.macro_f1()});
}

void compare_numbers() {
  lt::NumberPairs pairs;
  double target = 0;
  double predicted = 0;
  while (std::cin >> target >> predicted) pairs.add(target, predicted);
  print({pairs.pearson(), pairs.spearman(), pairs.mean_squared_error()});
}

}  // namespace

int main(int argc, char** argv) {
  return lt::test::run_program([&] {
    const std::string kind = argv[1];
    const std::int64_t classes = argc > 2 ? std::atoi(argv[2]) : 0;
    if (kind == "classes") return count_classes(classes);
    if (kind == "several") return count_several(classes);
    compare_numbers();
  });
}
