"""The sizes of the workloads, without torch. Those of the C++ side: bench/workloads.cpp and the headers it includes."""

# Samples of a rank, unless told otherwise: images, images, images with objects, vectors, sentences, vectors.
DEFAULT_BATCH = {"resnet18": 8, "resnet50": 8, "mask_rcnn": 2, "mlp": 64, "roberta": 8, "tensors100": 64}
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

# RoBERTa's widths with fewer layers and a small vocabulary: 20,519,426 parameters.
ROBERTA_VOCABULARY = 8192
ROBERTA_SEQUENCE = 64
ROBERTA_HIDDEN = 768
ROBERTA_FEEDFORWARD = 3072
ROBERTA_HEADS = 12
ROBERTA_LAYERS = 2
ROBERTA_CLASSES = 2
ROBERTA_DROPOUT = 0.1

# Two weights a block, each of 1,000 elements: 100 tensors.
RESIDUAL_MLP_FEATURES = 25
RESIDUAL_MLP_HIDDEN = 40
RESIDUAL_MLP_BLOCKS = 50
