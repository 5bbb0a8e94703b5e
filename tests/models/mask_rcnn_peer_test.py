"""libtrain's Mask R-CNN beside torchvision's, with the same weights and the same random choices: each stage, losses,
gradients, detections, and ten steps on two ranks beside one process and beside DDP."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import ddp
import jobs
import numpy
import torch
from safetensors.torch import load_file, save_file
from torchvision.models import resnet50
from torchvision.models.detection import rpn as torchvision_rpn
from torchvision.models.detection.backbone_utils import _resnet_fpn_extractor
from torchvision.models.detection.mask_rcnn import MaskRCNN
from torchvision.ops.misc import FrozenBatchNorm2d

CLASSES = 7
TOLERANCE = 1e-4
SIZES = ((240, 320), (330, 208), (256, 256))
SEEDS = (11 << 40, 5 << 33, 123 << 45)
STEPS = 10
LEARNING_RATE = 1e-5  # as in mask_rcnn_program; the loss falls without leaps, which would amplify rounding


def mix_bits(bits):
    """Stafford's Mix13, as in libtrain/base/splitmix.hpp."""
    bits = bits.astype(numpy.uint64)
    bits = (bits ^ (bits >> numpy.uint64(30))) * numpy.uint64(0xbf58476d1ce4e5b9)
    bits = (bits ^ (bits >> numpy.uint64(27))) * numpy.uint64(0x94d049bb133111eb)
    return bits ^ (bits >> numpy.uint64(31))


class SeededSampler:
    """Chooses as libtrain's sample_labels: an independent implementation in place of torchvision's random one."""

    def __init__(self, count, fraction, seeds):
        self.count, self.fraction, self.seeds = count, fraction, seeds

    def __call__(self, labels_of_images):
        masks = [], []
        for labels, seed in zip(labels_of_images, self.seeds, strict=True):
            keys = mix_bits(numpy.uint64(seed) + numpy.arange(len(labels), dtype=numpy.uint64))
            positive = numpy.flatnonzero(labels.numpy() >= 1)
            negative = numpy.flatnonzero(labels.numpy() == 0)
            positive = positive[numpy.argsort(keys[positive])][:int(self.count * self.fraction)]
            negative = negative[numpy.argsort(keys[negative])][:self.count - len(positive)]
            for mask, chosen in zip(masks, (positive, negative)):
                mask.append(torch.zeros(len(labels), dtype=torch.uint8))
                mask[-1][chosen] = 1
        return masks


def make_model(seeds, **options):
    """Random weights whose activations keep their size: the statistics of batch norms are those of random images."""
    torch.manual_seed(3)
    body = resnet50(norm_layer=lambda channels: torch.nn.BatchNorm2d(channels, momentum=None))
    body.train()
    with torch.no_grad():
        body(torch.randn(4, 3, 128, 128))
    frozen = resnet50(norm_layer=FrozenBatchNorm2d)
    frozen.load_state_dict(body.state_dict())
    for name, buffer in frozen.named_buffers():
        if name.endswith("weight"):
            buffer.uniform_(0.5, 1.0)
        elif name.endswith("bias"):
            buffer.normal_(0, 0.1)
    model = MaskRCNN(_resnet_fpn_extractor(frozen, 3), CLASSES, **options)
    with torch.no_grad():  # so that not all scores are alike
        model.rpn.head.cls_logits.weight *= 30
        model.rpn.head.bbox_pred.weight *= 3
        model.roi_heads.box_predictor.cls_score.weight *= 10
    model.rpn.fg_bg_sampler = SeededSampler(256, 0.5, seeds)
    model.roi_heads.fg_bg_sampler = SeededSampler(512, 0.25, [~seed & (2 ** 64 - 1) for seed in seeds])
    return model


def make_images(sizes):
    generator = torch.Generator().manual_seed(5)
    return [torch.rand(3, *size, generator=generator) for size in sizes]


def make_targets(sizes, counts):
    """Objects of several sizes in images of such sizes, with elliptic masks."""
    generator = numpy.random.default_rng(6)
    targets = []
    for (height, width), count in zip(sizes, counts, strict=True):
        boxes, masks = [], []
        y, x = numpy.mgrid[:height, :width] + 0.5
        for _ in range(count):
            w, h = generator.uniform(12, width * 0.6), generator.uniform(12, height * 0.6)
            left, top = generator.uniform(0, width - w), generator.uniform(0, height - h)
            boxes.append([left, top, left + w, top + h])
            masks.append(((x - left - w / 2) / (w / 2)) ** 2 + ((y - top - h / 2) / (h / 2)) ** 2 <= 1)
        targets.append({
            "boxes": torch.tensor(numpy.array(boxes, numpy.float32).reshape(-1, 4)),
            "labels": torch.tensor(generator.integers(1, CLASSES, count)),
            "masks": torch.tensor(numpy.array(masks, numpy.uint8).reshape(-1, height, width))})
    return targets


def numbered(name, tensors):
    return {f"{name}.{k}": tensor.detach().clone().contiguous() for k, tensor in enumerate(tensors)}


def signed(seeds):
    return torch.from_numpy(numpy.array(seeds, numpy.uint64).view(numpy.int64))


class MaskRcnn(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def libtrain(self, model, inputs, *options, ranks=None):
        torch.save(model.state_dict(), self.folder / "weights.pth")
        save_file(inputs, self.folder / "inputs.safetensors")
        result = self.folder / "result.safetensors"
        job = jobs.run([jobs.program("mask_rcnn_program"), "--weights", self.folder / "weights.pth",
                        "--inputs", self.folder / "inputs.safetensors", "--result", result,
                        "--output", self.folder / "output", "--dist-backend", "gloo", *options],
                       ranks=ranks, environment={"OMP_NUM_THREADS": "1" if ranks else "2"}, time_limit=400)
        self.assertEqual(job.exit_code, 0, job)
        return load_file(result)

    def assert_close(self, actual, expected, what, tolerance=TOLERANCE):
        self.assertEqual(actual.shape, expected.shape, what)
        if actual.numel() == 0:
            return
        difference = (actual.double() - expected.double()).abs().max().item()
        largest = expected.double().abs().max().item()
        self.deviations[what.split(".")[0]] = max(self.deviations.get(what.split(".")[0], 0),
                                                  difference / max(largest, 1e-30))
        self.assertLessEqual(difference, tolerance * largest, what)

    def test_each_stage_computes_what_torchvisions_does(self):
        self.compare_stages(torch.float32)

    def test_gradients_differ_by_rounding_alone(self):
        self.compare_stages(torch.float64)

    def compare_stages(self, dtype):
        self.deviations = {}
        model = make_model(SEEDS, min_size=256, max_size=400).to(dtype)
        images = [image.to(dtype) for image in make_images(SIZES)]
        batch, _ = model.transform(images)
        targets = make_targets(batch.image_sizes, (3, 1, 0))
        for target in targets:
            target["boxes"] = target["boxes"].to(dtype)
        inputs = {**numbered("image", images), "seeds": signed(SEEDS)}
        for name in ("boxes", "labels", "masks"):
            inputs.update(numbered(name, [target[name] for target in targets]))
        expected = {"images": batch.tensors}

        # Training, stage by stage.
        model.train()
        maps = model.backbone(batch.tensors)
        expected.update(numbered("maps", maps.values()))
        logits, corrections = model.rpn.head(list(maps.values()))
        anchors = model.rpn.anchor_generator(batch, list(maps.values()))
        per_level = [level[0].numel() for level in logits]
        flat_logits, flat_corrections = torchvision_rpn.concat_box_prediction_layers(logits, corrections)
        expected["anchors"] = anchors[0]
        expected["objectness"] = inputs["given.objectness"] = flat_logits.detach().view(len(images), -1)
        expected["anchor_corrections"] = inputs["given.anchor_corrections"] = \
            flat_corrections.detach().view(len(images), -1, 4)
        decoded = model.rpn.box_coder.decode(flat_corrections.detach(), anchors).view(len(images), -1, 4)

        def propose():
            return model.rpn.filter_proposals(decoded, flat_logits, batch.image_sizes, per_level)[0]

        proposals = propose()
        expected.update(numbered("proposals", proposals))
        inputs.update(numbered("given.proposals", proposals))
        labels, matched = model.rpn.assign_targets_to_anchors(anchors, targets)
        losses = list(model.rpn.compute_loss(flat_logits, flat_corrections, labels,
                                             model.rpn.box_coder.encode(matched, anchors)))
        heads = model.roi_heads
        sampled, matches, sample_labels, _ = heads.select_training_samples(list(proposals), targets)
        expected["sample_boxes"], expected["sample_labels"] = torch.cat(sampled), torch.cat(sample_labels)
        expected["sample_matches"] = torch.cat(matches)
        class_logits, box_corrections = heads.box_predictor(
            heads.box_head(heads.box_roi_pool(maps, sampled, batch.image_sizes)))
        expected["class_logits"] = class_logits
        expected["corrections"] = box_corrections.view(len(class_logits), CLASSES, 4)
        _, head_losses = heads(maps, list(proposals), batch.image_sizes, targets)
        losses += [head_losses[name] for name in ("loss_classifier", "loss_box_reg", "loss_mask")]
        expected["losses"] = torch.stack(losses)
        expected["losses"].sum().backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                expected["gradient." + name] = parameter.grad

        # Inference.
        model.eval()
        with torch.no_grad():
            evaluated = propose()
            expected.update(numbered("evaluation_proposals", evaluated))
            inputs.update(numbered("given.evaluation_proposals", evaluated))
            class_logits, box_corrections = heads.box_predictor(
                heads.box_head(heads.box_roi_pool(maps, evaluated, batch.image_sizes)))
            inputs["given.class_logits"] = class_logits
            inputs["given.corrections"] = box_corrections.view(len(class_logits), CLASSES, 4).contiguous()
            detections, _ = heads(maps, evaluated, batch.image_sizes)
            detections = model.transform.postprocess(detections, batch.image_sizes, list(SIZES))
        self.assertTrue(all(len(of_image["labels"]) > 3 for of_image in detections))
        expected.update(numbered("detected_boxes", [of_image["boxes"] for of_image in detections]))
        expected.update(numbered("detected_labels", [of_image["labels"] for of_image in detections]))
        expected.update(numbered("detected_scores", [of_image["scores"] for of_image in detections]))
        masks = [of_image["masks"].squeeze(1) for of_image in detections]
        expected.update(numbered("pasted_masks", masks))

        actual = self.libtrain(model, {name: tensor.contiguous() for name, tensor in inputs.items()})
        for k, of_image in enumerate(masks):
            # Except where rounding decides.
            unclear = (of_image - 0.5).abs() < 1e-4
            different = actual.pop(f"thresholded_masks.{k}").bool() != of_image.ge(0.5)
            self.assertFalse(different.logical_and(~unclear).any())
        self.assertEqual(set(actual), set(expected))
        for name, tensor in expected.items():
            is_gradient = name.startswith("gradient.")
            if dtype == torch.float32:
                # A rounding error that moves a number across ReLU's 0 changes gradients by more than rounding does.
                self.assert_close(actual[name], tensor.detach(), name, 1e-2 if is_gradient else TOLERANCE)
            elif is_gradient or name in ("images", "losses", "class_logits", "corrections", "objectness"):
                # Masks to learn are float32, and so is the order of proposals and detections.
                self.assert_close(actual[name], tensor.detach(), name, 1e-6)
        print("largest relative deviations:",
              ", ".join(f"{name} {value:.1e}" for name, value in self.deviations.items()))

    def steps_inputs(self):
        sizes, seeds = ((96, 128),) * 2, SEEDS[:2]
        images, targets = make_images(sizes), make_targets(sizes, (4, 1))
        inputs = {**numbered("image", images), "seeds": signed(seeds)}
        for name in ("boxes", "labels", "masks"):
            inputs.update(numbered(name, [target[name] for target in targets]))
        return images, targets, seeds, inputs

    def test_ten_steps_on_two_ranks_are_those_of_one_process_and_of_ddp(self):
        self.deviations = {}
        images, targets, seeds, inputs = self.steps_inputs()
        model = make_model(seeds, min_size=96, max_size=10000)
        together = self.libtrain(model, inputs, "--steps", STEPS)["losses"]
        averaged = self.libtrain(model, inputs, "--steps", STEPS, "--average-counts", ranks=2)["losses"]
        self.assertLess(together[-1], 0.9 * together[0])
        self.assert_close(averaged, together, "steps on two ranks and in one process")
        apart = self.libtrain(model, inputs, "--steps", STEPS, ranks=2)["losses"]
        torch.save((images, targets, seeds), self.folder / "given.pt")
        ddp.run(train_as_rank, self.folder)
        self.assert_close(apart, torch.load(self.folder / "losses.pt"), "steps beside DDP", 1e-3)
        print("largest relative deviations:",
              ", ".join(f"{name} {value:.1e}" for name, value in self.deviations.items()))


def train_as_rank(rank, folder):
    images, targets, seeds = torch.load(folder / "given.pt")
    model = make_model(seeds[rank:rank + 1], min_size=96, max_size=10000).train()
    replica = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=False)
    sgd = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=LEARNING_RATE, momentum=0.9)
    losses = []
    for _ in range(STEPS):
        loss = sum(replica(images[rank:rank + 1], targets[rank:rank + 1]).values())
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        losses.append(loss.item())
    losses = torch.tensor(losses, dtype=torch.float64)
    torch.distributed.all_reduce(losses)
    if rank == 0:
        torch.save(losses / 2, folder / "losses.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    jobs.require_programs("mask_rcnn_program")
    unittest.main()
