"""The programs that are there to be copied do what they show: they learn, on any number of ranks, and one rank that
fails ends a job whose main() is its own.
"""

import json
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import idx_files
import jobs
import ranks
import sockets

jobs.require_packages("PIL")

USAGE, ENVIRONMENT, COMMUNICATION = 2, 3, 4
DEMO = jobs.ROOT / "scripts/demo.sh"
QUICK = {"OMP_NUM_THREADS": "1"}


class Example(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = jobs.temporary_directory(cls)
        cls.data = idx_files.write_some(cls.folder / "data")

    def setUp(self):
        self.output = jobs.temporary_directory(self) / "output"

    def run_example(self, *command, ranks=2):
        return jobs.run(command, ranks=ranks, environment=QUICK)

    def require_learning(self, job, epochs):
        """A line an epoch, told by rank 0 alone, with a loss that falls."""
        self.assertEqual((job.exit_code, job.reports(), job.left_over), (0, [], ()), job)
        lines = re.findall(r"(?m)^libtrain: epoch (\d+): loss (\S+)$", job.stderr)
        self.assertEqual([int(epoch) for epoch, _ in lines], list(range(1, epochs + 1)), job)
        self.assertLess(float(lines[-1][1]), float(lines[0][1]), job)

    def summary(self):
        record = json.loads((self.output / "metrics.jsonl").read_text().splitlines()[-1])
        self.assertEqual(record["event"], "summary")
        return record


class FirstProgram(Example):
    def test_learns(self):
        self.require_learning(self.run_example(jobs.program("first_program"), "--data", self.data, "--output",
                                               self.output), 5)

    def test_an_option_that_it_does_not_know_is_told(self):
        job = self.run_example(jobs.program("first_program"), "--data", self.data, "--output", self.output, "--epochs",
                               "1")
        self.require_learning(job, 5)
        self.assertEqual(job.stderr.count("warning: --epochs had no effect: this program does not read it."), 1, job)
        self.assertNotIn("--data had no effect", job.stderr)


class CustomLoop(Example):
    def test_learns(self):
        job = self.run_example(jobs.program("custom_loop"), "--data", self.data, "--output", self.output)
        self.assertEqual((job.exit_code, job.reports()), (0, []), job)
        # The test pictures are among the training pictures.
        self.assertEqual(self.summary()["accuracy"], 1)


class Texts(Example):
    def test_learns_sentences_that_it_makes_up(self):
        job = self.run_example(jobs.program("texts"), "--output", self.output)
        self.assertEqual((job.exit_code, job.reports()), (0, []), job)
        self.assertEqual(self.summary()["accuracy"], 1)

    def test_reads_lines(self):
        file = self.folder / "reviews.tsv"
        file.write_text("".join(f"{index % 2}\t{'good' if index % 2 else 'dreadful'} number {index}\n"
                                for index in range(400)))
        job = self.run_example(jobs.program("texts"), "--data", file, "--output", self.output)
        self.assertEqual((job.exit_code, job.reports()), (0, []), job)
        self.assertEqual(self.summary()["accuracy"], 1)
        file.write_text("1\tgood\nbad\n")
        jobs.require_refusal(self, self.run_example(jobs.program("texts"), "--data", file, "--output", self.output),
                             ENVIRONMENT, "Line 2 of", file)


def write_coco(folder, pictures):
    """Pictures of different sizes with one red or blue rectangle each."""
    from PIL import Image
    images, annotations = [], []
    (folder / "train2017").mkdir(parents=True)
    (folder / "annotations").mkdir()
    for number in range(1, pictures + 1):
        width, height, category = 40 + number % 7, 52 - number % 9, 1 + number % 2
        picture = Image.new("RGB", (width, height), (20, 20, 20))
        left, top, side = 3 + number % 11, 5 + number % 5, 14 + number % 6
        picture.paste(((230, 30, 30), (30, 30, 230))[category - 1], (left, top, left + side, top + side))
        name = f"{number}.png"
        picture.save(folder / "train2017" / name)
        images.append({"id": number, "file_name": name, "width": width, "height": height})
        corners = [left, top, left + side, top, left + side, top + side, left, top + side]
        annotations.append({"id": number, "image_id": number, "category_id": category, "iscrowd": 0,
                            "bbox": [left, top, side, side], "area": side * side, "segmentation": [corners]})
    categories = [{"id": 1, "name": "red"}, {"id": 2, "name": "blue"}]
    (folder / "annotations" / "instances_train2017.json").write_text(
        json.dumps({"images": images, "annotations": annotations, "categories": categories}))


class Objects(Example):
    def test_learns_where_objects_are(self):
        write_coco(self.folder / "coco", 48)
        job = self.run_example(jobs.program("objects"), "--data", self.folder / "coco", "--size", "32", "--output",
                               self.output)
        self.assertEqual((job.exit_code, job.reports()), (0, []), job)
        self.assertGreater(self.summary()["accuracy"], 0.9)


class OwnMain(Example):
    def test_learns(self):
        for ranks in (None, 2, 3):
            with self.subTest(ranks=ranks):
                self.require_learning(self.run_example(jobs.program("own_main"), self.data, ranks=ranks), 3)

    def test_a_rank_that_fails_ends_the_job_with_its_error_and_code(self):
        # Rank 1 does not find its data while rank 0 waits for it.
        script = 'folder=$2; [ "$OMPI_COMM_WORLD_RANK" != 1 ] || folder=$3; exec "$1" "$folder"'
        missing = self.folder / "missing"
        job = self.run_example("sh", "-c", script, "sh", jobs.program("own_main"), self.data, missing)
        jobs.require_refusal(self, job, ENVIRONMENT, "libtrain[rank 1]: error: rank 1 of 2 on", missing, "does not exist")
        self.assertLess(job.ended - job.began, 30, job)

    def test_without_a_launcher_the_others_end_with_the_error_of_a_rank_that_fails(self):
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(sockets.free_port()),
                   "LIBTRAIN_JOB_ID": "the job of this test"}
        commands = [[jobs.program("own_main"), folder] for folder in (self.data, self.folder / "missing")]
        first, second = ranks.wait(ranks.start(self, commands, [meeting] * 2))
        self.assertEqual((first.exit_code, second.exit_code), (COMMUNICATION, ENVIRONMENT), first)
        self.assertRegex(first.stderr, "rank 1 failed: .*missing.* does not exist")

    def test_a_call_without_a_folder_is_a_usage_error(self):
        jobs.require_refusal(self, self.run_example(jobs.program("own_main"), ranks=None), USAGE, "own_main FOLDER")


class Demo(Example):
    def run_demo(self, *options):
        own = {"LIBTRAIN_BIN": str(Path(jobs.program("digits")).parent), "LIBTRAIN_OUTPUT": str(self.output)}
        if "LIBTRAIN_MPIRUN" in os.environ:
            own["LIBTRAIN_MPIRUN"] = os.environ["LIBTRAIN_MPIRUN"]
        return jobs.run([DEMO, "--epochs", "1", *options], environment=QUICK | own)

    def test_ends_with_the_table_of_its_run(self):
        job = self.run_demo("--data", self.data)
        self.assertEqual((job.exit_code, job.reports()), (0, []), job)
        accuracy = f"{self.summary()['accuracy']:.2%}"
        self.assertRegex(job.stdout, rf"(?m)^ *ranks .*held-out accuracy$\n *2 .* {accuracy}$")

    def test_a_run_that_fails_has_no_table_and_its_exit_code(self):
        self.assertEqual(self.run_demo("--data", self.data).exit_code, 0)
        job = self.run_demo("--data", self.folder / "missing")
        self.assertEqual(job.exit_code, ENVIRONMENT, job)
        self.assertNotIn("accuracy", job.stdout)

    def test_its_help_says_what_can_be_set(self):
        said = subprocess.run([DEMO, "--help"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(set(re.findall(r"\bLIBTRAIN_\w+", said)),
                         set(re.findall(r"\bLIBTRAIN_\w+", DEMO.read_text())))


if __name__ == "__main__":
    jobs.require_programs("custom_loop", "digits", "first_program", "objects", "own_main", "texts")
    unittest.main()
