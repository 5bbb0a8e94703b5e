#pragma once

#include <memory>

#include <bench/loader_workload.hpp>
#include <libtrain/data/sources/image_source.hpp>

namespace libtrain::bench {

/// Epochs of libtrain's own pictures of `source`: see make_loader_workload(). `threads` are workers of the DataLoader;
/// the thread that takes the batches only waits.
std::unique_ptr<LoaderWorkload> random_resized_crops(std::shared_ptr<const data::ImageSource> source, int threads);

/// The same pictures by DecodeThenCrop. Both draw the same crops, epoch by epoch.
std::unique_ptr<LoaderWorkload> decoded_then_cropped(std::shared_ptr<const data::ImageSource> source, int threads);

}  // namespace libtrain::bench
