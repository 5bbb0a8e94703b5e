"""The sizes of the workloads, without torch. Those of the C++ side: bench/workloads.cpp and the headers it includes."""

# Samples of a rank, unless told otherwise: images, images, images with objects, vectors, texts, texts,
# vectors.
DEFAULT_BATCH = {"resnet18": 8, "resnet50": 8, "mask_rcnn": 2, "mlp": 64, "roberta": 8, "roberta_base": 8,
                 "tensors100": 64}
IMAGE_WORKLOADS = ("resnet18", "resnet50", "mask_rcnn")

LEARNING_RATE = 0.001
# How long a step takes depends on how many proposals meet an object, therefore the weights must hardly change.
MASK_RCNN_LEARNING_RATE = 1e-6
MASK_RCNN_OBJECTS = 8  # of an image
# The weight of the last batch norm of each bottleneck block: frozen ones without the statistics of images let
# activations grow with every block.
MASK_RCNN_BRANCH_SCALE = 0.25

CLASSES = 1000
MLP_FEATURES = 1024
MLP_HIDDEN = 2048

# RoBERTa base, and one of its widths with fewer layers and a small vocabulary: tokens of a text, and what differs from
# the published sizes.
ROBERTA = {
    "roberta": (64, {"vocab_size": 8192, "num_hidden_layers": 2, "max_position_embeddings": 66}),
    "roberta_base": (128, {}),
}
ROBERTA_CLASSES = 2

# Two weights a block, each of 1,000 elements: 100 tensors.
RESIDUAL_MLP_FEATURES = 25
RESIDUAL_MLP_HIDDEN = 40
RESIDUAL_MLP_BLOCKS = 50
