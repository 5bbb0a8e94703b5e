#include <libtrain/comm/collective_record.hpp>

namespace libtrain {

const char* to_string(CollectiveRecord::State state) {
  switch (state) {
    case CollectiveRecord::State::queued:
      return "queued";
    case CollectiveRecord::State::running:
      return "running";
    case CollectiveRecord::State::done:
      return "done";
    case CollectiveRecord::State::failed:
      return "failed";
  }
  return "";
}

}  // namespace libtrain
