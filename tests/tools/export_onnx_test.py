"""libtrain-checkpoint export-onnx: onnxruntime's logits of the exported files, beside PyTorch's of the same weights.

Runs itself with the project's Python, which has these packages.
"""

import sys
import unittest
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1] / "support")]
import jobs

jobs.require_packages("numpy", "onnxruntime", "safetensors", "torch", "torchvision")

import onnxruntime
import torch
from safetensors.torch import save_file
from torchvision.models import resnet
from torchvision.models.resnet import BasicBlock, Bottleneck

from checkpoint_tool_test import ENVIRONMENT, USAGE, Tool, peak_kib, write_checkpoint

SIZES = ((2, 64, 64), (3, 97, 70))  # N, H, W


class Narrow(torch.nn.Module):
    """A ResNet of torchvision's blocks with the sizes that torchvision's own class does not have."""

    def __init__(self, block, layers, width, *, small=True, channels=3, classes=10, groups=1, group_width=64):
        super().__init__()
        self.small = small
        self.conv1 = torch.nn.Conv2d(channels, width, 3 if small else 7, 1 if small else 2, 1 if small else 3,
                                     bias=False)
        self.bn1 = torch.nn.BatchNorm2d(width)
        features = width
        for stage, blocks in enumerate(layers):
            planes, stage_blocks = width << stage, []
            for number in range(blocks):
                stride = 2 if stage > 0 and number == 0 else 1
                shortcut = None
                if stride != 1 or features != planes * block.expansion:
                    shortcut = torch.nn.Sequential(resnet.conv1x1(features, planes * block.expansion, stride),
                                                   torch.nn.BatchNorm2d(planes * block.expansion))
                stage_blocks.append(block(features, planes, stride, shortcut, groups, group_width))
                features = planes * block.expansion
            self.add_module(f"layer{stage + 1}", torch.nn.Sequential(*stage_blocks))
        self.fc = torch.nn.Linear(features, classes)

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        if not self.small:
            x = torch.nn.functional.max_pool2d(x, 3, 2, 1)
        for name, module in self.named_children():
            if name.startswith("layer"):
                x = module(x)
        return self.fc(x.mean((2, 3)))


def randomized(model, seed=1):
    """With norms that are no identities. Those at the end of a block are small, as in trained networks."""
    torch.manual_seed(seed)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if isinstance(module, torch.nn.BatchNorm2d):
            block = model.get_submodule(name.rpartition(".")[0])
            last = "bn3" if isinstance(block, Bottleneck) else "bn2"
            scale = 0.2 if name.endswith(last) and isinstance(block, (BasicBlock, Bottleneck)) else 1
            torch.nn.init.uniform_(module.weight, 0.5 * scale, 1.5 * scale)
            torch.nn.init.normal_(module.bias, std=0.2)
            torch.nn.init.normal_(module.running_mean, std=0.2)
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
            module.num_batches_tracked.fill_(7)
    return model.eval()


class Export(Tool):
    def setUp(self):
        super().setUp()
        self.output = self.folder / "model.onnx"

    def session(self):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        return onnxruntime.InferenceSession(self.output, options, providers=["CPUExecutionProvider"])

    def require_logits_of(self, model, channels=3, sizes=SIZES):
        session = self.session()
        for count, height, width in sizes:
            images = torch.randn(count, channels, height, width, generator=torch.Generator().manual_seed(height))
            (logits,) = session.run(["logits"], {"images": images.numpy()})
            with torch.no_grad():
                expected = model(images)
            self.assertEqual(logits.shape, tuple(expected.shape))
            self.assertGreater(expected.std(), 0.05)  # so that 1e-4 is a small difference
            self.assertLess(expected.abs().max(), 30)
            self.assertLess((torch.from_numpy(logits) - expected).abs().max(), 1e-4)

    def export(self, model, *arguments):
        self.lines("export-onnx", self.save("model.pth", model.state_dict()), self.output, *arguments)


class Logits(Export):
    def test_of_resnet18(self):
        model = randomized(resnet.resnet18())
        self.export(model)
        self.require_logits_of(model, sizes=(*SIZES, (1, 224, 224)))

    def test_of_resnet50(self):
        model = randomized(resnet.resnet50(num_classes=200))
        self.export(model)
        self.require_logits_of(model)

    def test_of_resnext50(self):
        model = randomized(resnet.resnext50_32x4d())
        self.export(model)
        self.require_logits_of(model)

    def test_of_wide_resnet50(self):
        model = randomized(resnet.wide_resnet50_2())
        self.export(model)
        self.require_logits_of(model)

    def test_of_small_networks(self):
        for options in (dict(block=BasicBlock, layers=[1], width=8),
                        dict(block=BasicBlock, layers=[2, 1], width=16, channels=1, classes=3),
                        dict(block=BasicBlock, layers=[1, 11, 1], width=4, small=False, channels=4),
                        dict(block=Bottleneck, layers=[1, 2, 1, 1], width=8),
                        dict(block=Bottleneck, layers=[2, 1, 3], width=16, groups=4, group_width=32, small=False),
                        # The inner widths are 3, 6, 12 and 25: rounded down, not doubled.
                        dict(block=Bottleneck, layers=[1, 1, 1, 1], width=10, group_width=20)):
            with self.subTest(**options):
                model = randomized(Narrow(**options))
                self.export(model, "--force")
                self.require_logits_of(model, options.get("channels", 3))

    def test_of_rounded_weights(self):
        for dtype in (torch.float16, torch.bfloat16, torch.float64):
            with self.subTest(dtype):
                model = randomized(Narrow(BasicBlock, [1, 1], 8)).to(dtype)
                self.export(model, "--force")
                self.require_logits_of(model.float())


class File(Export):
    """What else is in it, and where it comes from."""

    def setUp(self):
        super().setUp()
        self.model = randomized(Narrow(BasicBlock, [1, 1], 8))
        self.state = self.model.state_dict()

    def test_says_what_it_takes_and_gives(self):
        self.export(self.model)
        session = self.session()
        (images,), (logits,) = session.get_inputs(), session.get_outputs()
        self.assertEqual((images.name, images.type, images.shape), ("images", "tensor(float)", ["N", 3, "H", "W"]))
        self.assertEqual((logits.name, logits.type, logits.shape), ("logits", "tensor(float)", ["N", 10]))
        self.assertEqual(session.get_modelmeta().producer_name, "libtrain")
        self.assertEqual(session.get_modelmeta().custom_metadata_map, {})

    def test_has_what_the_weights_say_of_themselves(self):
        weights = self.folder / "weights.safetensors"
        save_file(self.state, weights, {"format": "pt", "classes": '["cat", "dög"]', "empty": ""})
        self.lines("export-onnx", weights, self.output)
        self.assertEqual(self.session().get_modelmeta().custom_metadata_map, {"classes": '["cat", "dög"]', "empty": ""})
        self.require_logits_of(self.model)

    def test_comes_from_a_part_of_a_checkpoint(self):
        average = {f"average.{name}": tensor for name, tensor in self.state.items()}
        checkpoint = write_checkpoint(self.folder / "run/checkpoints", 1, {"model": self.state, "ema": average})
        expected = {"infinite": {}, "output": str(self.output), "tensors": 32}
        found = self.json("export-onnx", checkpoint, self.output)
        self.assertEqual(found, expected | {"bytes": self.output.stat().st_size})
        self.require_logits_of(self.model)
        self.output.unlink()
        self.lines("export-onnx", checkpoint, self.output, "--part", "ema", "--prefix", "average.")
        self.require_logits_of(self.model)
        self.assertIn(f"such as '{checkpoint}'", self.refuse(USAGE, "export-onnx", self.folder / "run", self.output,
                                                             "--force"))

    def test_comes_from_names_that_are_changed(self):
        source = self.save("run.pth", {"epoch": 3, "model": {f"module.{name}": tensor
                                                             for name, tensor in self.state.items()}})
        self.assertIn("begin with 'model.module.': give it as --prefix.",
                      self.refuse(USAGE, "export-onnx", source, self.output))
        self.lines("export-onnx", source, self.output, "--prefix", "model.", "--rename", "module.=")
        self.require_logits_of(self.model)

    def test_does_not_need_num_batches_tracked(self):
        state = {name: tensor for name, tensor in self.state.items() if not name.endswith("num_batches_tracked")}
        self.lines("export-onnx", self.save("old.pth", state), self.output)
        self.require_logits_of(self.model)

    def test_reports_values_that_become_infinite(self):
        self.state["fc.bias"] = self.state["fc.bias"].double().fill_(1e300)
        source = self.save("large.pth", self.state)
        self.assertEqual(self.lines("export-onnx", source, self.output)[0],
                         "warning: fc.bias has 10 values that are infinite as F32")
        self.assertEqual(self.json("export-onnx", source, self.output, "--force")["infinite"], {"fc.bias": 10})


    def test_needs_memory_for_one_tensor(self):
        """So that it is the same for one block and for sixteen, which have 75 MB."""
        def peak(blocks):
            weights = self.save("weights.safetensors", Narrow(BasicBlock, [blocks], 256).state_dict())
            return peak_kib("export-onnx", weights, self.output, "--force")

        few = peak(1)
        self.assertLess(peak(16), 1.5 * few)


class Refusal(Export):
    def setUp(self):
        super().setUp()
        self.state = Narrow(BasicBlock, [1, 1], 8).state_dict()

    def refusal(self, state):
        message = self.refuse(USAGE, "export-onnx", self.save("weights.pth", state), self.output)
        self.assertFalse(self.output.exists())
        return message

    def test_of_another_network(self):
        message = self.refusal(torch.nn.Sequential(torch.nn.Linear(2, 3)).state_dict())
        self.assertIn("weights.pth' does not have the weights of a ResNet: none of its 2 tensors, such as '0.bias', is "
                      "called 'conv1.weight'. Give the weights of a ResNet by torchvision's names", message)

    def test_names_the_first_of_each_kind(self):
        for name in ("bn1.running_mean", "bn1.running_var", "layer1.0.conv2.weight", "fc.bias"):
            del self.state[name]
        self.assertIn("is called 'layer1.0.conv2.weight'", self.refusal(self.state))
        self.state |= {"layer1.0.conv2.weight": torch.ones(8, 8, 5, 5), "layer1.0.se.weight": torch.ones(1),
                       "fc.weight": torch.ones(10, 99), "layer1.0.se.bias": torch.ones(1)}
        self.assertIn("does not have the weights of a ResNet: 'bn1.running_mean' is missing (and 2 more), "
                      "'layer1.0.se.bias' is unexpected (and 1 more), 'layer1.0.conv2.weight' is F32 of shape "
                      "[8, 8, 5, 5] instead of [8, 8, 3, 3] (and 1 more). ", self.refusal(self.state))

    def test_of_other_arguments(self):
        source = self.save("weights.pth", self.state)
        self.assertIn("ends in .onnx", self.refuse(USAGE, "export-onnx", source, self.folder / "model.pb"))
        self.assertIn("No such file", self.refuse(ENVIRONMENT, "export-onnx", source, self.folder / "none/model.onnx"))
        self.output.write_bytes(b"older")
        self.assertIn("--force", self.refuse(USAGE, "export-onnx", source, self.output))
        self.assertEqual(self.output.read_bytes(), b"older")

    def test_leaves_the_older_file(self):
        """Of a full disk, and of a damaged input."""
        self.output.write_bytes(b"older")
        source = self.save("weights.pth", self.state)
        names = set(self.folder.iterdir())
        job = jobs.run(["bash", "-c", 'ulimit -f 4; exec "$@"', "bash", jobs.program("libtrain-checkpoint"),
                        "export-onnx", source, self.output, "--force"])
        self.assertEqual((job.exit_code, job.stdout, len(job.stderr.splitlines())), (ENVIRONMENT, "", 1), job)
        self.assertIn(f"Cannot write '{self.output}'", job.stderr)
        damaged = bytearray(source.read_bytes())
        damaged[damaged.index(self.state["fc.weight"].numpy().tobytes()) + 5] ^= 16
        source.write_bytes(damaged)
        self.assertIn("CRC-32", self.refuse(ENVIRONMENT, "export-onnx", source, self.output, "--force"))
        self.assertEqual((self.output.read_bytes(), set(self.folder.iterdir())), (b"older", names))


if __name__ == "__main__":
    torch.set_num_threads(1)
    jobs.require_programs("libtrain-checkpoint")
    unittest.main()
