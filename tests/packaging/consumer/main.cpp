#include <iostream>

#include <libtrain/base/build_info.hpp>
#include <libtrain/libtrain.hpp>
#include <libtrain/models/resnet.hpp>

int main() {
  auto model = libtrain::models::resnet18({.classes = 10, .width = 8});
  const auto communicator = libtrain::connect(libtrain::Launch{});
  libtrain::GradientSynchronizer synchronizer{*model, *communicator};
  std::cout << "libtrain " << libtrain::build_info().version << ", " << model->parameters().size() << " parameters\n";
}
