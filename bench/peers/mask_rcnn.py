"""Mask R-CNN and its operators in torchvision: the peer of bench_mask_rcnn, and with --make its weights and inputs.

On a GPU a time ends when the device has ended.
"""

import argparse
import contextlib
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
    parser.add_argument("--images", type=int, default=2, help="of a step, with --make (default: 2)")
    parser.add_argument("--side", type=int, default=320, help="of these images, in pixels (default: 320)")
    parser.add_argument("--data", type=pathlib.Path, help="folder with what --make writes")
    parser.add_argument("--workload", choices=WORKLOADS, nargs="+", default=["step"], help="one or several")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("float32", "bf16"), default="float32",
                        help="of the forward pass of step and inference")
    parser.add_argument("--channels-last", action="store_true", help="instead of PyTorch's layout")
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


def random_target(side, objects, generator):
    """Of an image: boxes of a sixteenth to half of its side, with masks that fill them."""
    boxes = random_boxes(objects, side, side / 16, side / 2, generator)
    masks = torch.zeros(objects, side, side, dtype=torch.uint8)
    for mask, (left, top, right, bottom) in zip(masks, boxes.long().tolist()):
        mask[top:bottom, left:right] = 1
    return {"boxes": boxes, "labels": torch.randint(1, 91, (objects,), generator=generator), "masks": masks}


def make_inputs(folder, images, side):
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
    targets = [random_target(side, 8, generator) for _ in range(images)]
    inputs = {name: torch.stack([target[name] for target in targets]) for name in targets[0]} | {
        "train_images": torch.randn(images, 3, side, side, generator=generator),
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
        if options.device == "cuda":
            torch.cuda.synchronize()
        if iteration >= 0:
            seconds.append(time.perf_counter() - start)
    return seconds


def load_model(options, **sizes):
    model = make_model(**sizes)
    model.load_state_dict(torch.load(options.data / "weights.pth"))
    return model.to(options.device, memory_format=layout(options))


def layout(options):
    return torch.channels_last if options.channels_last else torch.contiguous_format


def autocast(options):
    """Of a forward pass."""
    return torch.autocast(options.device, torch.bfloat16) if options.precision == "bf16" else contextlib.nullcontext()


def time_steps(options, inputs):
    # The images are ready: their transform only puts them into one tensor.
    side = inputs["train_images"].size(-1)
    model = load_model(options, min_size=side, max_size=side, image_mean=[0, 0, 0], image_std=[1, 1, 1]).train()
    fused = True if options.device == "cuda" else None
    sgd = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-6, momentum=0.9, fused=fused)
    images = list(inputs["train_images"].contiguous(memory_format=layout(options)))
    targets = [{name: inputs[name][k] for name in ("boxes", "labels", "masks")} for k in range(len(images))]

    def step():
        sgd.zero_grad()
        with autocast(options):
            loss = sum(model(images, targets).values())
        loss.backward()
        sgd.step()

    return timed(options, step)


def time_inference(options, inputs):
    model = load_model(options).eval()
    with torch.inference_mode(), autocast(options):
        return timed(options, lambda: model([inputs["photo"]]))


def time_nms(options, workload, inputs):
    boxes, scores = inputs[workload + "_boxes"], inputs[workload + "_scores"]
    return timed(options, lambda: torchvision.ops.nms(boxes, scores, 0.7))


def time_roi_align(options, inputs):
    features = inputs["map"].contiguous(memory_format=layout(options)).requires_grad_()
    boxes = torch.nn.functional.pad(inputs["map_boxes"], (1, 0))  # all of image 0
    gradient = features.new_ones(len(boxes), features.size(1), 7, 7)

    def work():
        features.grad = None
        torchvision.ops.roi_align(features, boxes, 7, 0.25, 2).backward(gradient)

    return timed(options, work)


def time_workload(options, workload, inputs):
    if workload == "step":
        return time_steps(options, inputs)
    if workload == "inference":
        return time_inference(options, inputs)
    if workload == "roi_align":
        return time_roi_align(options, inputs)
    return time_nms(options, workload, inputs)


def main():
    options = parse_arguments()
    if options.make:
        make_inputs(options.make, options.images, options.side)
        return
    torch.backends.cudnn.benchmark = options.device == "cuda"
    inputs = load_file(options.data / "inputs.safetensors", device=options.device)
    for workload in options.workload:
        torch.manual_seed(1)
        seconds = time_workload(options, workload, inputs)
        record = {
            "event": "mask_rcnn",
            "time": time.time(),
            "implementation": "torchvision",
            "workload": workload,
            "device": options.device,
            "precision": options.precision,
            "channels_last": options.channels_last,
            "threads": torch.get_num_threads(),
            "iterations": len(seconds),
            "median_s": statistics.median(seconds),
            "min_s": min(seconds),
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
        if options.json:
            with open(options.json, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        print(f"{workload}: minimum {record['min_s']:.4f} s, median {record['median_s']:.4f} s of {len(seconds)}",
              flush=True)


if __name__ == "__main__":
    main()
