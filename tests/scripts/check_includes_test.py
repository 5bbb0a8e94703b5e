"""Tests of scripts/check_includes.py on made-up trees: each kind of wrong include is caught, right ones pass."""

import runpy
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_includes.py"

# A tree without fault, which has a file for every pattern in the script's rules.
RIGHT = {
    pattern.removesuffix("*") + "hpp": ""
    for pattern in runpy.run_path(str(SCRIPT))["FREE_OF_TORCH"]
    if pattern.endswith(".*")
} | {
    "libtrain.hpp": "#include <libtrain/train/trainer.hpp>\n",
    "base/error.hpp": "#include <string>\n",
    "launch/launch.hpp": "#include <libtrain/base/error.hpp>\n",
    "numeric/norm.hpp": "#include <libtrain/base/error.hpp>\n",
    "comm/mpi/session.cpp": "#include <mpi.h>\n#include <libtrain/launch/launch.hpp>\n",
    "comm/work.hpp": "#include <ATen/core/Tensor.h>\n",
    "sync/bucket_plan.hpp": "#include <libtrain/base/error.hpp>\n",
    "data/sampler.hpp": "#include <libtrain/data/permutation.hpp>\n",
    "data/batch.hpp": "#include <ATen/core/Tensor.h>\n",
    "models/resnet.hpp": "#include <torch/nn.h>\n",
    "train/trainer.hpp": "#include <libtrain/data/batch.hpp>\n#include <libtrain/comm/work.hpp>\n",
}


class CheckIncludes(unittest.TestCase):
    def check(self, **changes):
        """The exit status and error output for the right tree with some files replaced; None removes one."""
        with tempfile.TemporaryDirectory() as root:
            for name, text in {**RIGHT, **changes.get("files", {})}.items():
                if text is None:
                    continue
                path = Path(root, "libtrain", name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            result = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True)
            return result.returncode, result.stderr

    def assert_caught(self, name, text, *expected):
        status, errors = self.check(files={name: text})
        self.assertEqual(status, 1)
        self.assertEqual(len(errors.splitlines()), 1, errors)
        for part in (name, *expected):
            self.assertIn(part, errors)

    def test_accepts_arrows_that_point_down(self):
        self.assertEqual(self.check(), (0, ""))

    def test_catches_an_arrow_that_points_up(self):
        self.assert_caught("comm/work.hpp", "#include <libtrain/sync/bucket_plan.hpp>\n", "sync/bucket_plan.hpp")
        self.assert_caught("base/log.cpp", "  # include  <libtrain/launch/launch.hpp>  // why\n", "launch/launch.hpp")

    def test_keeps_comm_out_of_data_and_models(self):
        self.assert_caught("data/batch.hpp", "#include <libtrain/comm/work.hpp>\n", "comm/work.hpp")
        self.assert_caught("models/resnet.hpp", "#include <libtrain/comm/work.hpp>\n", "comm/work.hpp")

    def test_keeps_models_out_of_the_umbrella_header(self):
        self.assert_caught("libtrain.hpp", "#include <libtrain/models/resnet.hpp>\n", "models/resnet.hpp")

    def test_keeps_the_umbrella_header_out_of_the_library(self):
        self.assert_caught("train/trainer.hpp", "#include <libtrain/libtrain.hpp>\n", "libtrain/libtrain.hpp")

    def test_keeps_torch_mpi_and_cuda_out_of_the_files_that_do_without(self):
        for header in ("torch/torch.h", "ATen/core/Tensor.h", "c10/util/Exception.h", "mpi.h", "cuda_runtime.h"):
            self.assert_caught("base/log.cpp", f"#include <{header}>\n", header)
        self.assert_caught("data/formats/idx.cpp", "#include <ATen/core/Tensor.h>\n", "ATen/core/Tensor.h")

    def test_follows_includes_to_torch_and_prints_the_way(self):
        self.assert_caught("data/sampler.hpp", "#include <libtrain/data/batch.hpp>\n",
                           "<libtrain/data/batch.hpp> -> <ATen/core/Tensor.h>")

    def test_refuses_quotes_which_hide_where_a_file_lies(self):
        self.assert_caught("train/trainer.hpp", '#include "trainer_state.hpp"\n', '"trainer_state.hpp"')

    def test_refuses_a_folder_without_a_rule(self):
        self.assert_caught("misc/things.hpp", "", "libtrain/misc has no rule")

    def test_says_when_a_rule_names_no_file(self):
        status, errors = self.check(files={"sync/bucket_plan.hpp": None})
        self.assertEqual(status, 1)
        self.assertIn("sync/bucket_plan.*: no such file", errors)


if __name__ == "__main__":
    unittest.main()
