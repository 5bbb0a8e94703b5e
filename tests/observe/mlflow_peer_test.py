"""Runs and models of libtrain on a real MLflow server, which this test starts on a free port.

Exit code 77, and a line that says so, where the server cannot be installed.
"""

import json
import math
import sys
import unittest
import urllib.parse
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "data/storage"))
import jobs
from emulator_process import Emulator, find_command

PYTHON = []  # the command, found before the tests begin


class Server(Emulator):
    """Keeps runs in an SQLite file and hands out artifacts from a folder."""

    def start(self):
        self.port = self.launch([*PYTHON, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", "0", "--workers",
                                 "1", "--backend-store-uri", f"sqlite:///{self.folder}/runs.db",
                                 "--artifacts-destination", str(self.folder / "artifacts")],
                                r"running on http://127\.0\.0\.1:(\d+)", seconds=240)
        self.url = f"http://127.0.0.1:{self.port}"

    def get(self, endpoint, **query):
        url = f"{self.url}/api/2.0/mlflow/{endpoint}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return json.load(answer)


def values(entries):
    return {entry["key"]: entry["value"] for entry in entries}


class OnAnMlflowServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = jobs.temporary_directory(cls)
        cls.server = Server(folder)
        cls.addClassCleanup(cls.server.kill)
        cls.server.start()
        cls.model = folder / "model"
        (cls.model / "part").mkdir(parents=True)
        (cls.model / "weights.safetensors").write_bytes(bytes(range(256)) * 4096)
        (cls.model / "part/a b.json").write_bytes(b"{}")
        cls.run_id = cls.program("run", cls.model, 2500, MLFLOW_EXPERIMENT_NAME="birds & bees")

    @classmethod
    def program(cls, *words, **environment):
        job = jobs.run([jobs.program("mlflow_program"), *words], time_limit=150,
                       environment={"MLFLOW_TRACKING_URI": cls.server.url} | environment)
        assert job.exit_code == 0 and job.stderr == "", job
        return job.stdout.strip()

    def test_the_run_has_its_parameters_tags_and_status(self):
        run = self.server.get("runs/get", run_id=self.run_id)["run"]
        self.assertEqual(run["info"]["status"], "FINISHED")
        self.assertEqual(run["info"]["run_name"], "from C++")
        self.assertEqual(values(run["data"]["params"]), {"lr": "0.1", "model": "m" * 6000, "odd_name": "x"})
        tags = values(run["data"]["tags"])
        self.assertEqual((tags["vm"], tags["note"]), ("Grüße", "a text"))
        experiment = self.server.get("experiments/get", experiment_id=run["info"]["experiment_id"])["experiment"]
        self.assertEqual(experiment["name"], "birds & bees")

    def test_every_metric_arrives_once(self):
        history = self.server.get("metrics/get-history", run_id=self.run_id, metric_key="train/loss",
                                  max_results=10000)["metrics"]
        found = {int(metric.get("step", 0)): metric["value"] for metric in history}
        self.assertEqual(len(history), 2500)
        self.assertEqual(found, {step: 1 / (1 + step) for step in range(2500)})

    def test_values_that_are_not_finite(self):
        metrics = values(self.server.get("runs/get", run_id=self.run_id)["run"]["data"]["metrics"])
        self.assertTrue(math.isnan(float(metrics["evaluation/nan"])))
        self.assertLess(float(metrics["evaluation/infinite"]), -1e300)

    def test_another_process_continues_the_run(self):
        first = self.program("run", self.model, 3)
        self.assertEqual(self.program("run", self.model, 5, MLFLOW_RUN_ID=first), first)
        history = self.server.get("metrics/get-history", run_id=first, metric_key="train/loss")["metrics"]
        self.assertEqual({int(metric.get("step", 0)) for metric in history}, set(range(5)))

    def test_a_model_is_fetched_by_its_name(self):
        target = jobs.temporary_directory(self)
        for version in ("latest", "1"):
            fetched = self.program("fetch", version, target / version)
            self.assertEqual(fetched, str(len(self.versions())) if version == "latest" else "1")
            for file in ("weights.safetensors", "part/a b.json"):
                self.assertEqual((target / version / file).read_bytes(), (self.model / file).read_bytes())

    def versions(self):
        return self.server.get("model-versions/search", filter="name='birds'")["model_versions"]

    def test_a_model_that_does_not_exist(self):
        job = jobs.run([jobs.program("mlflow_program"), "fetch", "77", jobs.temporary_directory(self)],
                       environment={"MLFLOW_TRACKING_URI": self.server.url})
        jobs.require_refusal(self, job, 3, "'birds' (77)", self.server.url)


if __name__ == "__main__":
    jobs.require_programs("mlflow_program")
    PYTHON[:] = find_command("mlflow_server.sh", "an MLflow server")
    unittest.main()
