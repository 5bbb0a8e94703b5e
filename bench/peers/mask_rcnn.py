"""Mask R-CNN and its operators in torchvision: the peer of bench_mask_rcnn, and with --make its weights and inputs."""

import argparse
import json
import pathlib
import resource
import statistics
import time

import torch
import torchvision
from safetensors.torch import load_file, save_file
from torchvision.models.detection.backbone_utils import _resnet_fpn_extractor
from torchvision.models.detection.mask_rcnn import MaskRCNN
from torchvision.ops.misc import FrozenBatchNorm2d

WORKLOADS = ("step", "inference", "nms_2000", "nms_20000", "roi_align")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", metavar="FOLDER", type=pathlib.Path, help="write weights and inputs, and end")
    parser.add_argument("--data", type=pathlib.Path, help="folder with what --make writes")
    parser.add_argument("--workload", choices=WORKLOADS, default="step")
    parser.add_argument("--iterations", type=int, default=15, help="timed runs (default: 15)")
    parser.add_argument("--json", metavar="FILE", help="append the record to this file")
    options = parser.parse_args()
    if (options.make is None) == (options.data is None):
        parser.error("give either --make or --data")
    if options.iterations < 1:
        parser.error("--iterations must be at least 1")
    return options


def make_model(**options):
    """With the sizes of maskrcnn_resnet50_fpn when its backbone has weights."""
    body = torchvision.models.resnet50(norm_layer=FrozenBatchNorm2d)
    return MaskRCNN(_resnet_fpn_extractor(body, 3), 91, **options)


def random_boxes(count, size, smallest, largest, generator):
    sides = smallest + torch.rand(count, 2, generator=generator) * (largest - smallest)
    corners = torch.rand(count, 2, generator=generator) * (size - sides)
    return torch.cat([corners, corners + sides], 1)


def make_inputs(folder):
    torch.manual_seed(1)
    # Batch norms with the statistics of images keep activations in range, as trained weights do.
    body = torchvision.models.resnet50(norm_layer=lambda channels: torch.nn.BatchNorm2d(channels, momentum=None))
    with torch.no_grad():
        body.train()(torch.randn(4, 3, 160, 160))
    model = make_model()
    statistics_of_images = {name: value for name, value in body.state_dict().items()
                            if not name.startswith("fc.") and not name.endswith("num_batches_tracked")}
    model.backbone.body.load_state_dict(statistics_of_images)
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), folder / "weights.pth")

    generator = torch.Generator().manual_seed(2)
    boxes = torch.stack([random_boxes(8, 320, 20, 160, generator) for _ in range(2)])
    masks = torch.zeros(2, 8, 320, 320, dtype=torch.uint8)
    for image in range(2):
        for number, (left, top, right, bottom) in enumerate(boxes[image].long().tolist()):
            masks[image, number, top:bottom, left:right] = 1
    inputs = {
        "train_images": torch.randn(2, 3, 320, 320, generator=generator), "boxes": boxes, "masks": masks,
        "labels": torch.randint(1, 91, (2, 8), generator=generator),
        "photo": torch.rand(3, 480, 640, generator=generator),
        "map": torch.randn(1, 256, 200, 272, generator=generator),
        "map_boxes": random_boxes(512, 800, 16, 200, generator),
    }
    for count in (2000, 20000):
        inputs[f"nms_{count}_boxes"] = random_boxes(count, 800, 10, 300, generator)
        inputs[f"nms_{count}_scores"] = torch.rand(count, generator=generator)
    save_file(inputs, folder / "inputs.safetensors")


def timed(options, work):
    seconds = []
    for iteration in range(-2, options.iterations):
        start = time.perf_counter()
        work()
        if iteration >= 0:
            seconds.append(time.perf_counter() - start)
    return seconds


def load_model(options, **sizes):
    model = make_model(**sizes)
    model.load_state_dict(torch.load(options.data / "weights.pth"))
    return model


def time_steps(options, inputs):
    # The images are ready: their transform only puts them into one tensor.
    model = load_model(options, min_size=320, max_size=320, image_mean=[0, 0, 0], image_std=[1, 1, 1]).train()
    sgd = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-6, momentum=0.9)
    images = list(inputs["train_images"])
    targets = [{name: inputs[name][k] for name in ("boxes", "labels", "masks")} for k in range(len(images))]

    def step():
        sgd.zero_grad()
        sum(model(images, targets).values()).backward()
        sgd.step()

    return timed(options, step)


def time_inference(options, inputs):
    model = load_model(options).eval()
    with torch.inference_mode():
        return timed(options, lambda: model([inputs["photo"]]))


def time_nms(options, inputs):
    boxes, scores = inputs[options.workload + "_boxes"], inputs[options.workload + "_scores"]
    return timed(options, lambda: torchvision.ops.nms(boxes, scores, 0.7))


def time_roi_align(options, inputs):
    features = inputs["map"].requires_grad_()
    boxes = torch.cat([torch.zeros(len(inputs["map_boxes"]), 1), inputs["map_boxes"]], 1)
    gradient = torch.ones(len(boxes), features.size(1), 7, 7)

    def work():
        features.grad = None
        torchvision.ops.roi_align(features, boxes, 7, 0.25, 2).backward(gradient)

    return timed(options, work)


def main():
    options = parse_arguments()
    if options.make:
        make_inputs(options.make)
        return
    inputs = load_file(options.data / "inputs.safetensors")
    torch.manual_seed(1)
    work = {"step": time_steps, "inference": time_inference, "roi_align": time_roi_align}.get(options.workload, time_nms)
    seconds = work(options, inputs)
    record = {
        "event": "mask_rcnn",
        "time": time.time(),
        "implementation": "torchvision",
        "workload": options.workload,
        "channels_last": False,
        "threads": torch.get_num_threads(),
        "iterations": len(seconds),
        "median_s": statistics.median(seconds),
        "min_s": min(seconds),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    if options.json:
        with open(options.json, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
    print(f"{options.workload}: minimum {record['min_s']:.4f} s, median {record['median_s']:.4f} s of {len(seconds)}")


if __name__ == "__main__":
    main()
