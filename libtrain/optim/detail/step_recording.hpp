#pragma once

namespace libtrain::optim::detail {

/// While one exists, this thread records a step into a graph: what a step decides on the host would be repeated by all
/// replays. StepGraph has one; LibTorch has no question for it that does not need its CUDA part.
class StepRecording {
 public:
  StepRecording() { ++count(); }
  ~StepRecording() { --count(); }
  StepRecording(const StepRecording&) = delete;  // ends once
  StepRecording& operator=(const StepRecording&) = delete;

  static bool is_under_way() { return count() > 0; }

 private:
  static int& count() {
    thread_local int recordings = 0;
    return recordings;
  }
};

}  // namespace libtrain::optim::detail
