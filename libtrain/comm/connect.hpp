#pragma once

#include <memory>

#include <libtrain/comm/communicator.hpp>
#include <libtrain/launch/launch.hpp>

namespace libtrain {

/// The communicator of a launched job: a SingleCommunicator for one process, MPI for several. All ranks must call it.
/// Throws EnvironmentError where this build cannot connect the ranks of that launcher, or where the launch environment
/// and MPI disagree about who this is.
std::shared_ptr<Communicator> connect(const Launch& launch, CommunicatorOptions options = {});

}  // namespace libtrain
