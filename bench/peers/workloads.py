"""The networks of bench/workloads.cpp and their synthetic data, in Python."""

import torch
import torchvision
from torch import nn

import mask_rcnn
import roberta
from workload_sizes import (
    CLASSES,
    LEARNING_RATE,
    MASK_RCNN_BRANCH_SCALE,
    MASK_RCNN_LEARNING_RATE,
    MASK_RCNN_OBJECTS,
    MLP_FEATURES,
    MLP_HIDDEN,
    RESIDUAL_MLP_BLOCKS,
    RESIDUAL_MLP_FEATURES,
    RESIDUAL_MLP_HIDDEN,
    ROBERTA,
    ROBERTA_CLASSES,
)


class Roberta(nn.Module):
    """Tokens [N, tokens] -> logits [N, classes]."""

    def __init__(self, sizes):
        super().__init__()
        from transformers import RobertaForSequenceClassification  # takes seconds, which other workloads do not need

        self.model = RobertaForSequenceClassification(roberta.make_config(num_labels=ROBERTA_CLASSES, **sizes))

    def forward(self, tokens):
        return self.model(tokens).logits


class ResidualMlp(nn.Module):
    """100 weights of 1,000 elements: each block adds to its input what two linear layers make of it."""

    def __init__(self):
        super().__init__()
        pairs = [
            (
                nn.Linear(RESIDUAL_MLP_FEATURES, RESIDUAL_MLP_HIDDEN, bias=False),
                nn.Linear(RESIDUAL_MLP_HIDDEN, RESIDUAL_MLP_FEATURES, bias=False),
            )
            for _ in range(RESIDUAL_MLP_BLOCKS)
        ]
        self.layers = nn.ModuleList(layer for pair in pairs for layer in pair)

    def forward(self, inputs):
        for up, down in zip(self.layers[::2], self.layers[1::2]):
            inputs = inputs + down(torch.relu(up(inputs)))
        return inputs


class MaskRcnnLoss(nn.Module):
    """(images, targets) -> the sum of the losses. The images are ready: the model only puts them into one tensor."""

    def __init__(self, image_size):
        super().__init__()
        self.model = mask_rcnn.make_model(
            min_size=image_size, max_size=image_size, image_mean=[0, 0, 0], image_std=[1, 1, 1]
        )
        for name, buffer in self.model.named_buffers():
            if name.endswith("bn3.weight"):
                buffer.fill_(MASK_RCNN_BRANCH_SCALE)

    def forward(self, images, targets):
        return sum(self.model(images, targets).values())


def make_model(workload, image_size):
    if workload == "mask_rcnn":
        return MaskRcnnLoss(image_size)
    if workload in ROBERTA:
        return Roberta(ROBERTA[workload][1])
    if workload == "tensors100":
        return ResidualMlp()
    if workload == "mlp":
        return nn.Sequential(
            nn.Linear(MLP_FEATURES, MLP_HIDDEN),
            nn.ReLU(),
            nn.Linear(MLP_HIDDEN, MLP_HIDDEN),
            nn.ReLU(),
            nn.Linear(MLP_HIDDEN, CLASSES),
        )
    return getattr(torchvision.models, workload)(weights=None, num_classes=CLASSES)


def learning_rate(workload):
    return MASK_RCNN_LEARNING_RATE if workload == "mask_rcnn" else LEARNING_RATE


def loss_of(workload, model, batch):
    if workload == "mask_rcnn":
        return model(*batch)
    inputs, labels = batch
    return nn.functional.cross_entropy(model(inputs), labels)


def make_batch(workload, batch, image_size, seed):
    """Inputs and labels for cross entropy, or images and targets for a detector, a function of the seed."""
    generator = torch.Generator().manual_seed(seed)
    if workload == "mask_rcnn":
        images = list(torch.randn(batch, 3, image_size, image_size, generator=generator))
        return images, [mask_rcnn.random_target(image_size, MASK_RCNN_OBJECTS, generator) for _ in images]
    if workload in ROBERTA:
        tokens, sizes = ROBERTA[workload]
        inputs = torch.randint(4, roberta.make_config(**sizes).vocab_size, (batch, tokens), generator=generator)
        classes = ROBERTA_CLASSES
    elif workload == "tensors100":
        inputs = torch.randn(batch, RESIDUAL_MLP_FEATURES, generator=generator)
        classes = RESIDUAL_MLP_FEATURES
    else:
        shape = (MLP_FEATURES,) if workload == "mlp" else (3, image_size, image_size)
        inputs = torch.randn(batch, *shape, generator=generator)
        classes = CLASSES
    return inputs, torch.randint(classes, (batch,), generator=generator)
