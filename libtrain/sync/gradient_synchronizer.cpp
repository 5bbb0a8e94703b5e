#include <libtrain/sync/gradient_synchronizer.hpp>

#include <atomic>
#include <string>
#include <utility>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/agreement.hpp>
#include <libtrain/sync/broadcast.hpp>
#include <libtrain/sync/detail/gradient_rounds.hpp>
#include <libtrain/sync/model_signature.hpp>

namespace libtrain {

namespace {

// Counts this process's synchronizers; rank 0's count names them on all ranks.
std::atomic<std::uint64_t> count = 0;

std::string name_of_next(Communicator& communicator) {
  const auto number = communicator.broadcast_bytes(std::to_string(++count), 0);
  return number == "1" ? "" : text(" of synchronizer ", number);
}

}  // namespace

GradientSynchronizer::GradientSynchronizer(ModuleRef held, Communicator& communicator, SynchronizerOptions options) {
  auto& module = *held;
  const CallPurpose purpose{communicator, "making a GradientSynchronizer"};
  // Gradients are laid out like their parameters, and averaged in memory order.
  require_same_model(module, communicator, Layouts::compared);
  detail::run_together(communicator, "Making a GradientSynchronizer", [&] {
    rounds_ = std::make_shared<detail::GradientRounds>(module, communicator, std::move(options));
    rounds_->hook();
  });
  rounds_->set_owner(name_of_next(communicator));
  detail::require_agreement({.subject = "The synchronizer's plan",
                             .unit = "lines",
                             .advice = "Give SynchronizerOptions the same values on every rank."},
                            rounds_->describe(), communicator);
  broadcast_tensors(module.parameters(), communicator);
  broadcast_tensors(module.buffers(), communicator);
}

// A no_sync() guard may keep the rounds longer; the module and the communicator may be destroyed after this.
GradientSynchronizer::~GradientSynchronizer() {
  rounds_->close();
}

bool GradientSynchronizer::wait() {
  return rounds_->wait();
}

void GradientSynchronizer::zero_grad() {
  rounds_->zero_grad();
}

GradientSynchronizer::NoSync GradientSynchronizer::no_sync() {
  rounds_->enter_no_sync();
  return NoSync{rounds_};
}

GradientSynchronizer::NoSync::~NoSync() {
  if (rounds_) rounds_->leave_no_sync();
}

std::int64_t GradientSynchronizer::set_samples(std::int64_t samples) {
  return rounds_->set_samples(samples);
}

bool GradientSynchronizer::join() {
  return rounds_->join();
}

void GradientSynchronizer::find_unused(const std::vector<at::Tensor>& outputs) {
  rounds_->find_unused(outputs);
}

void GradientSynchronizer::declare_unused(const std::vector<std::string>& names) {
  rounds_->declare_unused(names);
}

void GradientSynchronizer::broadcast_buffers() {
  rounds_->broadcast_buffers();
}

BucketLimits GradientSynchronizer::tune() {
  return rounds_->tune();
}

const std::vector<Bucket>& GradientSynchronizer::buckets() const {
  return rounds_->plan();
}

std::vector<std::string> GradientSynchronizer::parameter_names() const {
  std::vector<std::string> names;
  for (const auto& parameter : rounds_->parameters()) names.push_back(parameter.name);
  return names;
}

void GradientSynchronizer::request_stop() {
  rounds_->request_stop();
}

bool GradientSynchronizer::stop_requested() const {
  return rounds_->stop_requested();
}

bool GradientSynchronizer::skipped() const {
  return rounds_->skipped();
}

std::int64_t GradientSynchronizer::rounds() const {
  return rounds_->rounds();
}

SynchronizationStatistics GradientSynchronizer::statistics() const {
  return rounds_->statistics();
}

}  // namespace libtrain
