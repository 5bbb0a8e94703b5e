#include <libtrain/data/stage_clock.hpp>

namespace libtrain::data {

namespace {

thread_local StageClock* current = nullptr;

}  // namespace

StageClock::StageClock() : previous_(current) {
  current = this;
}

StageClock::~StageClock() {
  current = previous_;
}

StageClock* StageClock::of_this_thread() {
  return current;
}

void StageClock::resume() {
  running_ = true;
  since_ = Clock::now();
}

void StageClock::pause() {
  charge();
  running_ = false;
}

LoaderStage StageClock::enter(LoaderStage stage) {
  charge();
  const LoaderStage before = stage_;
  stage_ = stage;
  return before;
}

void StageClock::charge() {
  if (!running_) return;
  const Clock::time_point now = Clock::now();
  seconds_[static_cast<std::size_t>(stage_)] += std::chrono::duration<double>(now - since_).count();
  since_ = now;
}

}  // namespace libtrain::data
