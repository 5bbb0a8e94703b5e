"""The mnist example beside the Python examples that it ports: the same losses step by step as PyTorch, alone and with
DDP, and their accuracy, on any number of ranks, however they are started. And both programs of the page for PyTorch's
users."""

import json
import re
import struct
import sys
import unittest
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / folder) for folder in ("support", "data", "models", "scripts")]
import jobs

jobs.require_packages("PIL", "safetensors", "torch", "torchvision")

import ddp
import idx_files
import loader_jobs
import ranks
import sockets
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from readme_test import FROM_PYTORCH, code_of
from torchvision_peer_test import MNIST

USAGE, ENVIRONMENT = 2, 3
DIGITS = jobs.ROOT / "examples/digits/data"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


class Case(NamedTuple):
    """Steps to compare."""
    ranks: int
    batch_size: int
    model: str
    float16: bool = False


# Their losses have been equal to the last bit, with float16 to 5e-8.
SEED, IMAGES, EPOCHS, TOLERANCE = 3, 256, 2, 1e-5
CASES = {
    "one process": Case(1, 32, "horovod_mnist"),
    "the other network": Case(1, 64, "pytorch_mnist"),
    "DDP": Case(2, 32, "horovod_mnist"),
    "DDP with fp16_compress_hook": Case(2, 32, "horovod_mnist", float16=True),
}
LR, MOMENTUM, WEIGHT_DECAY = 0.02, 0.9, 0.01

# With 5 seeds, PyTorch reached 0.956 to 0.969, and the example 0.944 to 0.969 on 1 and on 2 ranks.
LEARNING_LR, LEARNING_EPOCHS, MARGIN = 0.05, 20, 0.045


def read_digits(split, folder=DIGITS):
    """Images as the example enlarges and scales them, and labels."""
    pixels = (folder / f"{split}-images-idx3-ubyte").read_bytes()
    count, height, width = struct.unpack(">3I", pixels[4:16])
    images = torch.frombuffer(bytearray(pixels[16:]), dtype=torch.uint8).view(count, 1, height, width).float() / 255
    labels = torch.frombuffer(bytearray((folder / f"{split}-labels-idx1-ubyte").read_bytes()[8:]), dtype=torch.uint8)
    return F.interpolate((images - 0.1307) / 0.3081, size=28, mode="bilinear"), labels.long()


def write_first_digits(folder):
    """The first training images, as both splits."""
    folder.mkdir()
    for split in ("train", "t10k"):
        for kind, header, bytes_each in (("images-idx3", 16, 64), ("labels-idx1", 8, 1)):
            content = (DIGITS / f"train-{kind}-ubyte").read_bytes()
            (folder / f"{split}-{kind}-ubyte").write_bytes(
                content[:4] + struct.pack(">I", IMAGES) + content[8:header + IMAGES * bytes_each])


def relative_difference(actual, expected):
    return abs(actual / expected - 1)


def compress(state, bucket):
    """fp16_compress_hook, which DDP refuses by its name where there is no NCCL, though gloo serves as well."""
    return fp16_compress_hook(state, bucket)


def train(model, batches, folder, lr):
    """The example in Python, on batches of the given images: its losses."""
    images, labels = read_digits("train", folder)
    sgd = torch.optim.SGD(model.parameters(), lr=lr, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    losses = []
    for batch in batches:
        loss = F.nll_loss(model(images[batch]), labels[batch])
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


def make(name, rank=0):
    torch.manual_seed((SEED + 0x9E3779B97F4A7C15 * rank) % 2**64)  # as run() does: dropout differs between ranks
    return MNIST[name]()


def train_as_rank(rank, orders, folder):
    """The example with DDP; rank 0 leaves the means of the losses."""
    for case, order in orders.items():
        model = torch.nn.parallel.DistributedDataParallel(make(CASES[case].model, rank))
        if CASES[case].float16:
            model.register_comm_hook(None, compress)
        losses = train(model, order[rank], folder, LR * 2)
        torch.distributed.all_reduce(losses)
        if rank == 0:
            torch.save(losses / 2, folder / f"{case}.pt")


def accuracy_of_pytorch():
    """What the example in Python learns in one process."""
    torch.manual_seed(SEED)
    (images, labels), (test_images, test_labels) = read_digits("train"), read_digits("t10k")
    model = MNIST["horovod_mnist"]()
    sgd = torch.optim.SGD(model.parameters(), lr=LEARNING_LR, momentum=0.5)
    for _ in range(LEARNING_EPOCHS):
        for batch in torch.randperm(len(images)).split(64):
            sgd.zero_grad()
            F.nll_loss(model(images[batch]), labels[batch]).backward()
            sgd.step()
    with torch.no_grad():
        return model.eval()(test_images).argmax(1).eq(test_labels).float().mean().item()


class Mnist(unittest.TestCase):
    def setUp(self):
        self.folder = jobs.temporary_directory(self)
        self.output = self.folder / "output"

    def command(self, *options):
        return [jobs.program("mnist"), "--output", self.output, *options]

    def train(self, *options, ranks=None):
        """The records of a run, by event."""
        job = jobs.run(self.command(*options), ranks=ranks, environment=ONE_THREAD, time_limit=120)
        self.assertEqual((job.exit_code, job.reports(), job.left_over), (0, [], ()), job)
        return self.records()

    def records(self):
        records = {}
        for line in (self.output / "metrics.jsonl").read_text().splitlines():
            record = json.loads(line)
            records.setdefault(record["event"], []).append(record)
        return records


class Steps(Mnist):
    @classmethod
    def setUpClass(cls):
        cls.data = jobs.temporary_directory(cls) / "data"
        write_first_digits(cls.data)
        cls.pictures = jobs.temporary_directory(cls) / "pictures"
        loader_jobs.make_pictures(cls.pictures, IMAGES)

    def orders(self, case):
        """For each rank the images of each batch, in all epochs: they depend on the number of images alone."""
        return [self.order(rank, case) for rank in range(case.ranks)]

    def order(self, rank, case):
        job = loader_jobs.run_rank("--data", self.pictures, "--rank", rank, "--world-size", case.ranks, "--batch-size",
                                   case.batch_size, "--seed", SEED, "--epochs", EPOCHS)
        self.assertEqual(job.exit_code, 0, job)
        steps = loader_jobs.steps_of(job.stdout)
        return [[image for image, _ in steps[key]] for key in sorted(steps)]

    def require_losses(self, name, expected):
        case = CASES[name]
        self.output = self.folder / name
        records = self.train("--data", self.data, "--model", case.model, "--batch-size", case.batch_size, "--lr", LR,
                             "--momentum", MOMENTUM, "--weight-decay", WEIGHT_DECAY, "--epochs", EPOCHS,
                             "--log-interval", 1, "--seed", SEED, *["--fp16-allreduce"] * case.float16,
                             ranks=case.ranks if case.ranks > 1 else None)
        actual = [record["loss"] for record in records["step"]]
        self.assertEqual(len(actual), EPOCHS * IMAGES // case.batch_size // case.ranks)
        self.assertEqual(len(actual), len(expected))
        differences = list(map(relative_difference, actual, expected))
        print(f"parity mnist {name}: {max(differences):.1e}")
        self.assertLessEqual(max(differences), TOLERANCE, differences)

    def test_have_the_losses_of_pytorch(self):
        torch.set_num_threads(1)
        for name in ("one process", "the other network"):
            with self.subTest(name):
                (order,) = self.orders(CASES[name])
                self.require_losses(name, train(make(CASES[name].model), order, self.data, LR).tolist())

    def test_have_the_losses_of_ddp(self):
        names = ("DDP", "DDP with fp16_compress_hook")
        self.assertEqual(len({CASES[name][:2] for name in names}), 1)  # one order serves both
        order = self.orders(CASES[names[0]])
        ddp.run(train_as_rank, dict.fromkeys(names, order), self.data)
        losses = {name: torch.load(self.data / f"{name}.pt").tolist() for name in names}
        self.assertGreater(max(map(relative_difference, *losses.values())), 10 * TOLERANCE)  # float16 shows
        for name in names:
            with self.subTest(name):
                self.require_losses(name, losses[name])


class Learning(Mnist):
    OPTIONS = ("--lr", LEARNING_LR, "--epochs", LEARNING_EPOCHS)

    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        cls.pytorch = accuracy_of_pytorch()
        print(f"accuracy of PyTorch: {cls.pytorch:.3f}")

    def require_accuracy(self, records, ranks):
        self.assertEqual(records["summary"][0]["ranks"], ranks)
        evaluations = records["evaluation"]
        self.assertEqual(len(evaluations), LEARNING_EPOCHS)
        print(f"accuracy on {ranks} ranks: {evaluations[-1]['accuracy']:.3f}")
        self.assertGreaterEqual(evaluations[-1]["accuracy"], self.pytorch - MARGIN)
        self.assertLess(evaluations[-1]["test_loss"], evaluations[0]["test_loss"])

    def test_reaches_the_accuracy_of_pytorch_at_any_number_of_ranks(self):
        for ranks in (1, 2):
            for flags in ([], ["--fp16-allreduce"]):
                with self.subTest(ranks=ranks, flags=flags):
                    self.output = self.folder / f"{ranks}{flags}"
                    records = self.train(*self.OPTIONS, *flags, ranks=ranks)
                    self.require_accuracy(records, ranks)
                    self.assertEqual(records["run"][0]["config"]["fp16-allreduce"], "true" if flags else "false")

    def test_ranks_that_are_started_by_hand_learn(self):
        url = f"tcp://127.0.0.1:{sockets.free_port()}"
        commands = [self.command(*self.OPTIONS, "--data", DIGITS, "--fp16-allreduce", "--rank", rank, "--world-size", 2,
                                 "--dist-url", url, "--dist-backend", "gloo") for rank in range(2)]
        # Nothing but the options says which rank a process is.
        unset = ["env", "-u", "RANK", "-u", "WORLD_SIZE"]
        for rank in ranks.wait(ranks.start(self, [unset + command for command in commands]), time_limit=120):
            self.assertEqual((rank.exit_code, rank.timed_out), (0, False), rank)
        self.require_accuracy(self.records(), 2)


class Page(Mnist):
    """The programs of docs/coming-from-pytorch.md. With 5 seeds, both reached 0.961 to 0.969."""

    def run_two_ranks(self, command, **options):
        """The accuracies that it prints for its epochs."""
        job = jobs.run(command, environment=ONE_THREAD, time_limit=200, directory=self.folder, **options)
        self.assertEqual((job.exit_code, job.left_over), (0, ()), job)
        accuracies = [float(value) for value in re.findall(r"epoch \d+: accuracy ([\d.]+)", job.stdout + job.stderr)]
        self.assertEqual(len(accuracies), 10, job)
        return accuracies

    def test_both_programs_learn_the_same(self):
        (program,) = code_of(FROM_PYTORCH, "python")
        (self.folder / "mnist.py").write_text(program)
        (self.folder / "data/MNIST").mkdir(parents=True)
        (self.folder / "data/MNIST/raw").symlink_to(DIGITS)
        theirs = self.run_two_ranks([sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr",
                                     "127.0.0.1", "--nproc-per-node", 2, "mnist.py", "data"])
        ours = self.run_two_ranks([jobs.program("mnist_loop"), "--data", DIGITS, "--output", self.output], ranks=2)
        print(f"accuracy of the page's programs: {theirs[-1]:.3f}, {ours[-1]:.3f}")
        self.assertGreater(min(theirs[-1], ours[-1]), 0.94)
        self.assertLess(abs(theirs[-1] - ours[-1]), 0.025)

        state = load_file(self.folder / "mnist.safetensors")
        self.assertEqual({name: value.shape for name, value in state.items()},
                         {name: value.shape for name, value in torch.load(self.folder / "mnist.pth").items()})


class BadInput(Mnist):
    def require_refusal(self, exit_code, options, *words, ranks=None):
        jobs.require_refusal(self, jobs.run(self.command(*options), ranks=ranks, environment=ONE_THREAD), exit_code,
                             *words)

    def test_missing_and_damaged_files_are_named(self):
        missing, data = self.folder / "missing", self.folder / "data"
        self.require_refusal(ENVIRONMENT, ["--data", missing], missing, "does not exist")
        write_first_digits(data)
        images = data / "t10k-images-idx3-ubyte"
        whole = images.read_bytes()
        images.write_bytes(whole[:-1])
        self.require_refusal(ENVIRONMENT, ["--data", data], images, ranks=2)
        images.unlink()
        self.require_refusal(ENVIRONMENT, ["--data", data], images)

    def test_images_of_another_size_are_refused(self):
        for size in ((32, 32), (28, 14)):
            with self.subTest(size=size):
                data = self.folder / str(size)
                idx_files.write_some(data)
                for split, count in (("train", 64), ("t10k", 3)):
                    (data / f"{split}-images-idx3-ubyte").write_bytes(
                        struct.pack(">4I", 0x803, count, *size) + bytes(count * size[0] * size[1]))
                self.require_refusal(USAGE, ["--data", data], f"The images in --data are {size[0]} x {size[1]}.",
                                     "Use MNIST's of 28 x 28")

    def test_images_of_mnists_size_are_not_enlarged(self):
        data = self.folder / "data"
        idx_files.write_some(data)
        for split, count in (("train", 64), ("t10k", 3)):
            (data / f"{split}-images-idx3-ubyte").write_bytes(
                struct.pack(">4I", 0x803, count, 28, 28) + bytes(count * 28 * 28))
        job = jobs.run(self.command("--data", data, "--epochs", 1), environment=ONE_THREAD)
        self.assertEqual(job.exit_code, 0, job)
        self.assertNotIn("enlarged", job.stderr)

    def test_unknown_models_and_words_behind_a_flag_are_refused(self):
        self.require_refusal(USAGE, ["--model", "resnet50"], "--model is 'resnet50'", "horovod_mnist, pytorch_mnist")
        self.require_refusal(USAGE, ["--fp16-allreduce", "yes"], "--fp16-allreduce: 'yes' is not true or false")
        self.require_refusal(USAGE, ["--momentum", "1.5"], "--momentum is '1.5'")


if __name__ == "__main__":
    jobs.require_programs("loader_program", "mnist", "mnist_loop")
    unittest.main()
