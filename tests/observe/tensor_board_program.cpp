// usage: tensor_board_program <folder> <png of 3 x 2 pixels>
//
// Writes one of everything for tensor_board_peer_test.py.

#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include <libtrain/observe/tensor_board.hpp>

int main(int count, char** arguments) {
  if (count != 3) return 2;
  libtrain::TensorBoardWriter writer{arguments[1]};
  writer.log_params({{"lr", "0.1"}, {"model", "resnet18"}, {"amp", "false"}});
  for (int step = 0; step < 5; ++step) {
    const std::vector<libtrain::Metric> metrics{{"loss", 1.0 / (1 + step)}, {"lr", 0.1}};
    writer.log_metrics("step", step, metrics);
  }
  writer.log_scalar("not a number", 3, std::numeric_limits<double>::quiet_NaN());
  writer.log_scalar("far", std::numeric_limits<std::int32_t>::max(), 1.0);
  writer.log_text("note", 2, "Grüße, *all*");
  std::ifstream file{arguments[2], std::ios::binary};
  const std::string png{std::istreambuf_iterator<char>{file}, {}};
  writer.log_image("picture", 1, {.bytes = png, .height = 2, .width = 3, .channels = 3});
  std::vector<float> values;
  for (int i = 0; i < 1000; ++i) values.push_back(static_cast<float>(i) / 1000.0F);
  writer.log_histogram("weights", 4, libtrain::Histogram::of(values));
  writer.end(libtrain::RunStatus::finished);
}
