#include <libtrain/train/same_data.hpp>

#include <libtrain/comm/detail/agreement.hpp>

namespace libtrain {

void require_same_data(const data::DatasetIdentity& identity, Communicator& communicator) {
  if (communicator.world_size() == 1) return;
  const CallPurpose purpose{communicator, "comparing the data of the ranks"};
  detail::require_agreement({.subject = "The data set",
                             .unit = "lines",
                             .advice = "Give all ranks the same data, and start the job after the data are complete."},
                            identity, communicator);
}

void require_same_data(const data::IndexedDataset& dataset, Communicator& communicator) {
  if (communicator.world_size() > 1) require_same_data(dataset.identity(), communicator);
}

}  // namespace libtrain
