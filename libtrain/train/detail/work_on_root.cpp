#include <libtrain/train/detail/work_on_root.hpp>

#include <chrono>
#include <future>

#include <libtrain/comm/detail/agreement.hpp>

namespace libtrain::detail {

void run_on_root(Communicator& communicator, const WorkOnRoot& work) {
  constexpr std::chrono::milliseconds kInterval{200};
  const bool is_root = communicator.rank() == 0;
  std::future<void> done;
  try {
    run_together(communicator, work.what, [&] {
      if (is_root) done = std::async(std::launch::async, work.run);
    });
    for (std::string state = "busy"; !state.empty(); state = communicator.broadcast_bytes(state, 0)) {
      if (is_root && done.wait_for(kInterval) == std::future_status::ready) state.clear();
      if (!is_root && work.while_waiting) work.while_waiting();
    }
  } catch (...) {
    if (work.give_up) work.give_up();  // the destructor of `done` waits
    throw;
  }
  run_together(communicator, work.what, [&] {
    if (is_root) done.get();
  });
}

}  // namespace libtrain::detail
