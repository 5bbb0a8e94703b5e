"""PyTorch DDP and libtrain, side by side: the same weights, data and options give the same gradients and weights."""

import array
import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs

PYTHON = jobs.ROOT / ".deps/bin/python"
PEER = Path(__file__).resolve().parent / "ddp_parity_peer.py"
STEPS = 20
GRADIENT_BOUND = 1e-5

PLAIN = {"optimizer": "sgd", "micro_steps": 1, "unused": "refused", "wire": "float32"}
CASES = {
    "sgd": PLAIN,
    "adamw": PLAIN | {"optimizer": "adamw"},
    "no_sync": PLAIN | {"micro_steps": 3},
    "find_unused_parameters": PLAIN | {"unused": "allowed"},
    "bf16_compress_hook": PLAIN | {"wire": "bfloat16"},
}


def read_steps(path):
    """One list of numbers a step."""
    numbers = array.array("f", path.read_bytes())
    count = len(numbers) // STEPS
    return [numbers[step * count:(step + 1) * count] for step in range(STEPS)]


def deviation(actual, wanted):
    """The largest difference, relative to the largest magnitude wanted."""
    return max(abs(a - w) for a, w in zip(actual, wanted)) / max(map(abs, wanted))


@unittest.skipUnless(PYTHON.exists(), "this environment has no Python with torch")
class DdpParity(unittest.TestCase):
    """The bounds are a few roundings: all but AdamW, which was 1.9e-7 apart, have been equal to the last bit."""

    @classmethod
    def setUpClass(cls):
        cls.folder = jobs.temporary_directory(cls)
        peer = jobs.run([PYTHON, PEER, cls.folder, json.dumps(CASES)], time_limit=180,
                        environment={"OMP_NUM_THREADS": "1"})
        if peer.exit_code != 0:
            raise AssertionError(f"PyTorch DDP failed: {peer}")

    def require_parity(self, name, bound):
        case = CASES[name]
        trajectory, gradients = self.folder / f"{name}.libtrain", self.folder / f"{name}.libtrain_gradients"
        job = jobs.run([jobs.program("ddp_parity_program"), "--data", self.folder, "--trajectory", trajectory,
                        "--gradients", gradients,
                        "--optimizer", case["optimizer"], "--micro-steps", case["micro_steps"],
                        "--unused", case["unused"], "--wire", case["wire"], "--quiet",
                        "--output", self.folder / "output"],
                       ranks=2, environment={"OMP_NUM_THREADS": "1"})
        self.assertEqual((job.exit_code, job.left_over), (0, ()), job)
        self.require_equal_steps(name, trajectory, self.folder / f"{name}.ddp", bound)
        self.require_equal_steps(f"{name} gradients", gradients, self.folder / f"{name}.ddp_gradients",
                                 GRADIENT_BOUND)

    def require_equal_steps(self, name, ours, theirs, bound):
        ours, theirs = read_steps(ours), read_steps(theirs)
        self.assertEqual([len(step) for step in ours], [len(step) for step in theirs])
        self.assertNotEqual(theirs[0], theirs[-1])
        deviations = [deviation(*pair) for pair in zip(ours, theirs)]
        print(f"parity ddp {name} ranks 2: {max(deviations):.1e}")
        self.assertLessEqual(max(deviations), bound, f"step by step: {deviations}")

    def test_sgd_with_momentum(self):
        self.require_parity("sgd", 1e-6)

    def test_adamw(self):
        self.require_parity("adamw", 2e-6)

    def test_accumulation_of_three_micro_steps(self):
        self.require_parity("no_sync", 1e-6)

    def test_parameters_unused_on_one_rank_or_on_all(self):
        self.require_parity("find_unused_parameters", 1e-6)

    def test_gradients_that_travel_in_bfloat16(self):
        self.require_parity("bf16_compress_hook", 1e-5)


if __name__ == "__main__":
    jobs.require_programs("ddp_parity_program")
    unittest.main()
