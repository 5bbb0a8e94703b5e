#pragma once

/// Everything but the models: `#include <libtrain/models/resnet.hpp>` and the like come beside it.

#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/types.h>

#include <libtrain/base/build_info.hpp>
#include <libtrain/base/clock.hpp>
#include <libtrain/base/environment.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/comm/communicator.hpp>
#include <libtrain/comm/connect.hpp>
#include <libtrain/comm/threads/run_ranks.hpp>
#include <libtrain/data/data_loader.hpp>
#include <libtrain/data/idx_images.hpp>
#include <libtrain/data/image_dataset.hpp>
#include <libtrain/data/image_folder.hpp>
#include <libtrain/data/sources/open_image_source.hpp>
#include <libtrain/data/storage/open_storage.hpp>
#include <libtrain/launch/launch.hpp>
#include <libtrain/observe/metrics.hpp>
#include <libtrain/observe/progress.hpp>
#include <libtrain/optim/fused_adamw.hpp>
#include <libtrain/optim/fused_sgd.hpp>
#include <libtrain/optim/gradient_clipping.hpp>
#include <libtrain/optim/lamb.hpp>
#include <libtrain/optim/lars.hpp>
#include <libtrain/optim/learning_rate.hpp>
#include <libtrain/optim/loss_scaler.hpp>
#include <libtrain/optim/moving_average.hpp>
#include <libtrain/optim/schedule.hpp>
#include <libtrain/sync/bucket_plan.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/sync/replica_check.hpp>
#include <libtrain/sync/sharded_optimizer.hpp>
#include <libtrain/sync/state_broadcast.hpp>
#include <libtrain/sync/sync_batch_norm.hpp>
#include <libtrain/sync/wire/half_precision.hpp>
#include <libtrain/sync/wire/power_sgd.hpp>
#include <libtrain/train/failed_job.hpp>
#include <libtrain/train/gather_loader_state.hpp>
#include <libtrain/train/require_finite.hpp>
#include <libtrain/train/run.hpp>
#include <libtrain/train/same_data.hpp>
#include <libtrain/train/synchronization_summary.hpp>
