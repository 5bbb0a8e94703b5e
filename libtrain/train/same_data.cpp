#include <libtrain/train/same_data.hpp>

#include <libtrain/comm/agreement.hpp>

namespace libtrain {

void require_same_data(const data::Dataset& dataset, Communicator& communicator) {
  if (communicator.world_size() == 1) return;
  const CallPurpose purpose{communicator, "require_same_data()"};
  detail::require_agreement({.subject = "The data set",
                             .unit = "lines",
                             .advice = "Give all ranks the same data, and start once they are complete."},
                            dataset.identity(), communicator);
}

}  // namespace libtrain
