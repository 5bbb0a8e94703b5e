"""Tests of scripts/check_includes.py on made-up trees: each kind of wrong include is caught, right ones pass."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_includes.py"

RIGHT = {
    "libtrain/libtrain.hpp": "#include <libtrain/train/trainer.hpp>\n#include <libtrain/sync/bucket_plan.hpp>\n"
                             "#include <libtrain/data/sampler.hpp>\n#include <libtrain/data/batch.hpp>\n"
                             "#include <libtrain/comm/work.hpp>\n#include <libtrain/base/error.hpp>\n",
    "libtrain/base/CMakeLists.txt": "target_sources(libtrain_core PRIVATE\n  detail/log.cpp error.cpp)\n",
    "libtrain/base/error.hpp": "#include <string>\n",
    "libtrain/base/error.cpp": "#include <libtrain/base/detail/log.hpp>\n",
    "libtrain/base/detail/log.hpp": "",
    "libtrain/base/detail/log.cpp": "#include <libtrain/base/detail/log.hpp>\n",
    "libtrain/launch/detail/launch.hpp": "#include <libtrain/base/error.hpp>\n",
    "libtrain/numeric/detail/norm.hpp": "#include <libtrain/base/error.hpp>\n",
    "libtrain/comm/CMakeLists.txt": "target_sources(libtrain_core PRIVATE detail/mpi/session.cpp)\n"
                                    "libtrain_use_in_sources(libtrain_core SOURCES detail/mpi/session.cpp)\n"
                                    "target_sources(libtrain PRIVATE work.cpp)\n",
    "libtrain/comm/detail/mpi/session.cpp": "#include <mpi.h>\n#include <libtrain/launch/detail/launch.hpp>\n",
    "libtrain/comm/work.hpp": "#include <ATen/core/Tensor.h>\n",
    "libtrain/comm/work.cpp": "#include <libtrain/comm/work.hpp>\n",
    "libtrain/sync/bucket_plan.hpp": "#include <libtrain/base/error.hpp>\n",
    "libtrain/data/CMakeLists.txt": "target_sources(libtrain_data PRIVATE sampler.cpp)\n",
    "libtrain/data/sampler.hpp": "#include <cstdint>\n",
    "libtrain/data/sampler.cpp": "#include <libtrain/data/detail/permutation.hpp>\n",
    "libtrain/data/detail/permutation.hpp": "",
    "libtrain/data/batch.hpp": "#include <ATen/core/Tensor.h>\n",
    "libtrain/models/resnet.hpp": "#include <torch/nn.h>\n",
    "libtrain/train/trainer.hpp": "#include <libtrain/data/batch.hpp>\n#include <libtrain/comm/work.hpp>\n",
    "examples/train.cpp": "#include <libtrain/libtrain.hpp>\n",
}


class CheckIncludes(unittest.TestCase):
    def check(self, **changes):
        """The exit status and error output for the right tree with some files replaced; None removes one."""
        with tempfile.TemporaryDirectory() as root:
            for name, text in {**RIGHT, **changes.get("files", {})}.items():
                if text is None:
                    continue
                path = Path(root, name)
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
        self.assert_caught("libtrain/comm/work.hpp", "#include <libtrain/sync/bucket_plan.hpp>\n", "sync/bucket_plan.hpp")
        self.assert_caught("libtrain/base/detail/log.cpp", "  # include  <libtrain/launch/detail/launch.hpp>  // why\n",
                           "launch/detail/launch.hpp")

    def test_keeps_comm_out_of_data_and_models(self):
        self.assert_caught("libtrain/data/batch.hpp", "#include <libtrain/comm/work.hpp>\n", "comm/work.hpp")
        self.assert_caught("libtrain/models/resnet.hpp", "#include <libtrain/comm/work.hpp>\n", "comm/work.hpp")

    def test_keeps_models_out_of_the_umbrella_header(self):
        umbrella = "libtrain/libtrain.hpp"
        self.assert_caught(umbrella, RIGHT[umbrella] + "#include <libtrain/models/resnet.hpp>\n", "models/resnet.hpp")

    def test_keeps_the_umbrella_header_out_of_the_library(self):
        self.assert_caught("libtrain/train/trainer.hpp", "#include <libtrain/libtrain.hpp>\n", "libtrain/libtrain.hpp")

    def test_keeps_torch_mpi_and_cuda_out_of_the_files_that_do_without(self):
        for header in ("torch/torch.h", "ATen/core/Tensor.h", "c10/util/Exception.h", "mpi.h", "cuda_runtime.h"):
            self.assert_caught("libtrain/base/error.cpp", f"#include <{header}>\n", header)
        self.assert_caught("libtrain/data/sampler.cpp", "#include <ATen/core/Tensor.h>\n", "ATen/core/Tensor.h")

    def test_follows_includes_to_torch_and_prints_the_way(self):
        self.assert_caught("libtrain/data/sampler.cpp", "#include <libtrain/data/batch.hpp>\n",
                           "<libtrain/data/batch.hpp> -> <ATen/core/Tensor.h>")

    def test_refuses_quotes_which_hide_where_a_file_lies(self):
        self.assert_caught("libtrain/train/trainer.hpp", '#include "trainer_state.hpp"\n', '"trainer_state.hpp"')

    def test_refuses_a_folder_without_a_rule(self):
        self.assert_caught("libtrain/misc/things.cpp", "", "libtrain/misc has no rule")

    def test_says_when_no_source_is_to_be_free_of_torch(self):
        lists = {name: None for name in RIGHT if name.endswith("CMakeLists.txt")}
        status, errors = self.check(files=lists)
        self.assertEqual(status, 1)
        self.assertIn("no CMakeLists.txt has a source of libtrain_core", errors)

    def test_keeps_private_headers_out_of_public_ones_and_of_examples(self):
        self.assert_caught("libtrain/data/batch.hpp", "#include <libtrain/data/detail/permutation.hpp>\n",
                           "data/detail/permutation.hpp", "private")
        self.assert_caught("examples/train.cpp", "#include <libtrain/base/detail/log.hpp>\n", "base/detail/log.hpp")

    def test_knows_the_namespace_of_each_folder(self):
        for name, right, wrong in (("libtrain/base/error.hpp", "libtrain", "libtrain::base"),
                                   ("libtrain/base/detail/log.hpp", "libtrain::detail", "libtrain"),
                                   ("libtrain/data/batch.hpp", "libtrain::data", "libtrain")):
            text = RIGHT[name] + "namespace {} {{\n}}\n"
            self.assertEqual(self.check(files={name: text.format(right)}), (0, ""))
            self.assert_caught(name, text.format(wrong), f"namespace {wrong}, not {right}")

    def test_says_which_public_header_the_umbrella_lacks(self):
        self.assert_caught("libtrain/observe/metrics.hpp", "", "does not reach it")


if __name__ == "__main__":
    unittest.main()
