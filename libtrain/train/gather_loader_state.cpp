#include <libtrain/train/gather_loader_state.hpp>

#include <utility>

#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/agreement.hpp>

namespace libtrain {

data::LoaderState gather_loader_state(const data::LoaderState& own, Communicator& communicator) {
  const CallPurpose purpose{communicator, "gather_loader_state()"};
  detail::require_agreement({.subject = "The loader's state",
                             .unit = "lines",
                             .advice = "Gather it after the same step on every rank, with the same data and options."},
                            {text("epoch ", own.epoch, ", position ", own.position), text("seed ", own.seed),
                             text("a data set of ", own.dataset_size, " samples: ", own.data),
                             text("order ", own.order, ", content ", own.content)},
                            communicator);
  data::LoaderState all = own;
  all.bad_samples.clear();
  for (const auto& given : communicator.all_gather_bytes(own.to_text())) {
    for (auto& of_rank : data::LoaderState::from_text(given).bad_samples) all.bad_samples.push_back(std::move(of_rank));
  }
  return all;
}

}  // namespace libtrain
