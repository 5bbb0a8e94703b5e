"""libtrain's models beside torchvision's, and those of examples, with the same weights: logits, gradients, running
statistics, and ten steps on two ranks beside DDP."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import ddp
import jobs
import torch
import torch.nn.functional as F
import torchvision
from safetensors.torch import load_file, save_file

TOLERANCE = 1e-4
SMALL = ("resnet18", "resnet50")
LARGE = ("resnet101", "wide_resnet50_2", "resnext50_32x4d")
STEPS_ALONE, STEPS_OF_TWO = 5, 10


class HorovodMnist(torch.nn.Module):
    """As in Horovod's examples/pytorch/pytorch_mnist.py."""

    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = torch.nn.Conv2d(10, 20, kernel_size=5)
        self.conv2_drop = torch.nn.Dropout2d()
        self.fc1 = torch.nn.Linear(320, 50)
        self.fc2 = torch.nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
        x = F.dropout(F.relu(self.fc1(x.view(-1, 320))), training=self.training)
        return F.log_softmax(self.fc2(x), dim=1)


class PytorchMnist(torch.nn.Module):
    """As in mnist/main.py of PyTorch's examples."""

    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 32, 3, 1)
        self.conv2 = torch.nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = torch.nn.Dropout(0.25)
        self.dropout2 = torch.nn.Dropout(0.5)
        self.fc1 = torch.nn.Linear(9216, 128)
        self.fc2 = torch.nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = torch.flatten(self.dropout1(F.max_pool2d(x, 2)), 1)
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


MNIST = {"horovod_mnist": HorovodMnist, "pytorch_mnist": PytorchMnist}


def inputs(images, shape=(3, 64, 64), classes=1000):
    generator = torch.Generator().manual_seed(4)
    return {"images": torch.randn(images, *shape, generator=generator),
            "labels": torch.randint(classes, (images,), generator=generator)}


def make(name):
    torch.manual_seed(7)
    return MNIST[name]() if name in MNIST else getattr(torchvision.models, name)()


def train(model, images, labels, steps):
    """The losses of steps of SGD."""
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


def train_as_rank(rank, folder):
    given = load_file(folder / "inputs.safetensors")
    images, labels = (tensor.chunk(2)[rank] for tensor in (given["images"], given["labels"]))
    losses = train(torch.nn.parallel.DistributedDataParallel(make("resnet50")), images, labels, STEPS_OF_TWO)
    torch.distributed.all_reduce(losses)
    if rank == 0:
        torch.save(losses / 2, folder / "losses.pt")


class Models(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def libtrain(self, name, images, steps, ranks=None, options=()):
        """What models_program writes for torchvision's weights in a file of torch.save."""
        torch.save(make(name).state_dict(), self.folder / "weights.pth")
        save_file(images, self.folder / "inputs.safetensors")
        result = self.folder / "result.safetensors"
        # As many threads as here: other orders of sums change the gradients of ResNet-50's first layer by a percent.
        job = jobs.run([jobs.program("models_program"), "--model", name, "--weights", self.folder / "weights.pth",
                        "--inputs", self.folder / "inputs.safetensors", "--result", result, "--steps", steps,
                        "--output", self.folder / "output", "--dist-backend", "gloo", *options],
                       ranks=ranks, environment={"OMP_NUM_THREADS": "1"}, time_limit=280)
        self.assertEqual(job.exit_code, 0, job)
        return load_file(result)

    def assert_close(self, actual, expected, what):
        self.assertEqual(actual.shape, expected.shape, what)
        difference = (actual.double() - expected.double()).abs().max().item()
        self.assertLessEqual(difference, TOLERANCE * expected.double().abs().max().item(), what)

    def test_compute_what_torchvisions_compute(self):
        self.compare(SMALL)

    def test_large_ones_compute_what_torchvisions_compute(self):
        self.compare(LARGE)

    def compare(self, names):
        for name in names:
            with self.subTest(name):
                given = inputs(4)
                found = self.libtrain(name, given, STEPS_ALONE)
                model = make(name)
                with torch.no_grad():
                    self.assert_close(found["evaluation_logits"], model.eval()(given["images"]), "evaluation")
                logits = model.train()(given["images"])
                self.assert_close(found["training_logits"], logits, "training")
                torch.nn.functional.cross_entropy(logits, given["labels"]).backward()
                gradients = {f"gradient.{key}": value.grad for key, value in model.named_parameters()}
                self.assertEqual({key for key in found if key.startswith("gradient.")}, set(gradients))
                for key, gradient in gradients.items():
                    self.assert_close(found[key], gradient, key)

                model = make(name).train()
                self.assert_close(found["losses"], train(model, given["images"], given["labels"], STEPS_ALONE), "losses")
                statistics = [key for key in model.state_dict() if "running_" in key]
                self.assertGreater(len(statistics), 30)
                for key in statistics:
                    self.assert_close(found[key], model.state_dict()[key], key)

    def test_mnist_networks_compute_what_those_of_the_examples_compute(self):
        for name in MNIST:
            with self.subTest(name):
                given = inputs(4, (1, 28, 28), 10)
                found = self.libtrain(name, given, 0, options=("--classes", 10, "--channels", 1))
                with torch.no_grad():
                    self.assert_close(found["evaluation_logits"], make(name).eval()(given["images"]), name)

    def test_ten_steps_on_two_ranks_are_those_of_ddp(self):
        found = self.libtrain("resnet50", inputs(8), STEPS_OF_TWO, ranks=2)
        ddp.run(train_as_rank, self.folder)
        expected = torch.load(self.folder / "losses.pt")
        self.assertEqual(len(expected), STEPS_OF_TWO)
        for actual, wanted in zip(found["losses"], expected):
            self.assertLessEqual(abs(actual - wanted), TOLERANCE * abs(wanted))


if __name__ == "__main__":
    torch.set_num_threads(1)
    jobs.require_programs("models_program")
    unittest.main()
