#include <iostream>

#include <libtrain/base/build_info.hpp>
#include <libtrain/libtrain.hpp>
#include <libtrain/models/resnet.hpp>

int main() {
  auto model = libtrain::models::resnet18({.classes = 10, .width = 8});
  const auto connection = libtrain::connect(libtrain::Launch{}, {.device = libtrain::DeviceChoice::cpu});
  libtrain::GradientSynchronizer synchronizer{*model, *connection.communicator};
  std::cout << "libtrain " << libtrain::build_info().version << ", " << model->parameters().size() << " parameters\n";
}
