#pragma once

/// Everything but the models: `#include <libtrain/models/resnet.hpp>` and the like come beside it.

#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/types.h>

#include <libtrain/base/build_info.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/log.hpp>
#include <libtrain/comm/communicator.hpp>
#include <libtrain/comm/connect.hpp>
#include <libtrain/comm/threads/run_ranks.hpp>
#include <libtrain/data/data_loader.hpp>
#include <libtrain/data/idx_images.hpp>
#include <libtrain/observe/metrics.hpp>
#include <libtrain/observe/progress.hpp>
#include <libtrain/optim/learning_rate.hpp>
#include <libtrain/optim/schedule.hpp>
#include <libtrain/sync/bucket_plan.hpp>
#include <libtrain/sync/gradient_synchronizer.hpp>
#include <libtrain/train/run.hpp>
