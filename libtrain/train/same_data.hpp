#pragma once

#include <libtrain/comm/communicator.hpp>
#include <libtrain/data/sources/image_source.hpp>

namespace libtrain {

/// Throws UsageError on every rank, all with the same text, unless all ranks have listed the same images: as many, in
/// the same classes and, of a thousand spread over them, at the same places. A folder that is still being filled, or
/// that differs from node to node, would otherwise give some samples twice and others wrong labels. All ranks must call
/// it. Nothing is read but names.
void require_same_data(const data::ImageSource& images, Communicator& communicator);

}  // namespace libtrain
