"""Labelled texts that Python's csv and json modules and pyarrow wrote, read by libtrain.

Runs itself with the project's Python, which has pyarrow. LIBTRAIN_TEST_SEED repeats a failure.
"""

import csv
import json
import os
import random
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs

jobs.require_packages("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

CLASSES, SEVERAL, NUMBERS = 1, 2, 3
LETTERS = ["a", "b", " ", ",", '"', "'", "\\", "\n", "\r\n", "\t", ";", "é", "ß", "日本", "😀", "\u200d", "e\u0301", "\0", "{", "]"]
NAMES = ["good", "bad", "say \"so\"", "é, ü", "10", "9"]


def text_of(rng, letters):
    return "x" + "".join(rng.choice(letters) for _ in range(rng.choice([0, 1, 5, 40, 400])))


class LabelledTextsPeer(unittest.TestCase):
    maxDiff = 4000

    def setUp(self):
        self.folder = jobs.temporary_directory(self)
        seed = int(os.environ.get("LIBTRAIN_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
        print(f"LIBTRAIN_TEST_SEED={seed}")
        self.rng = random.Random(seed)

    def expect(self, path, rows, labels=CLASSES, columns=("", "", ""), header=True):
        """`rows`: of each row its texts, and its labels as they are printed."""
        job = jobs.run([jobs.program("labelled_texts_program"), str(labels), *columns, "1" if header else "0", path])
        self.assertEqual((job.exit_code, job.left_over), (0, ()), job)
        expected = ["".join("=" + text.encode().hex() for text in texts) + "".join(" " + label for label in of_row)
                    for texts, of_row in rows]
        self.assertEqual(job.stdout.splitlines(), expected)

    def pairs(self, count, letters):
        return [([text_of(self.rng, letters), text_of(self.rng, letters)], [self.rng.choice(NAMES)])
                for _ in range(count)]

    def test_csv_as_the_csv_module_writes_it(self):
        # The module leaves a field with a carriage return alone without quotes unless it must quote all.
        styles = [(csv.QUOTE_MINIMAL, "\n", []), (csv.QUOTE_ALL, "\r\n", ["\r"])]
        for number, (quoting, end, more) in enumerate(styles * 3):
            rows = self.pairs(300, LETTERS + more)
            path = self.folder / f"{number}.csv"
            with open(path, "w", newline="", encoding="utf-8-sig" if number % 3 == 0 else "utf-8") as file:
                writer = csv.writer(file, quoting=quoting, lineterminator=end)
                writer.writerow(["id", "premise", "label", "hypothesis"])
                for key, ((first, second), (label,)) in enumerate(rows):
                    writer.writerow([key, first, label, second])
            self.expect(path, rows)

    def test_tabs_without_quotes(self):
        rows = self.pairs(300, [letter for letter in LETTERS if letter not in "\t\n\r\n"])
        path = self.folder / "dev.tsv"
        with open(path, "w", newline="", encoding="utf-8") as file:
            for (first, second), (label,) in rows:
                file.write("\t".join([label, first, second]) + "\n")
        self.expect(path, rows, columns=("1", "2", "0"), header=False)

    def test_json_lines_as_the_json_module_writes_them(self):
        rows = self.pairs(300, LETTERS)
        path = self.folder / "a.jsonl"
        with open(path, "w", encoding="utf-8") as file:
            for number, ((first, second), (label,)) in enumerate(rows):
                row = {"label": label, "sentence2": second, "extra": [None, {"label": 5}], "sentence1": first}
                file.write(json.dumps(row, ensure_ascii=number % 2 == 0) + "\n")
        self.expect(path, rows)

    def test_parquet_of_any_text_type(self):
        rows = self.pairs(200, LETTERS)
        for number, kind in enumerate([pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]):
            path = self.folder / f"{number}.parquet"
            pq.write_table(pa.table({"label": pa.array([label for _, (label,) in rows]),
                                     "question1": pa.array([first for (first, _), _ in rows], kind),
                                     "question2": pa.array([second for (_, second), _ in rows], kind)}),
                           path, row_group_size=64)
            self.expect(path, rows)

    def test_labels_of_all_kinds(self):
        integers = [self.rng.choice([0, 1, 2, 30]) for _ in range(100)]
        reals = [self.rng.choice([0.1, -2.5, 1e300, 5e-324, self.rng.random()]) for _ in range(100)]
        lists = [sorted(self.rng.sample(NAMES[:4], self.rng.randrange(4))) for _ in range(100)]
        numbers = [sorted(self.rng.sample([3, 20, 100], self.rng.randrange(4))) for _ in range(100)]
        table = pa.table({"text": [f"text {n}" for n in range(100)], "integers": pa.array(integers, pa.int8()),
                          "reals": reals, "lists": pa.array(lists, pa.list_(pa.string())),
                          "numbers": pa.array(numbers, pa.list_(pa.int64()))})
        pq.write_table(table, self.folder / "a.parquet", row_group_size=30)
        (self.folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
        order = sorted(NAMES[:4], key=str.encode)
        for name in ["a.parquet", "a.jsonl"]:
            for column, kind, printed in [("integers", CLASSES, [[str(n)] for n in integers]),
                                          ("reals", NUMBERS, [["%.17g" % n] for n in reals]),
                                          ("lists", SEVERAL, [sorted(names, key=order.index) for names in lists]),
                                          ("numbers", SEVERAL, [[str(n) for n in each] for each in numbers])]:
                with self.subTest(name=name, column=column):
                    rows = [([f"text {n}"], labels) for n, labels in enumerate(printed)]
                    self.expect(self.folder / name, rows, kind, ("text", "", column))

    def test_a_null_is_refused_by_its_row(self):
        pq.write_table(pa.table({"text": ["a", None], "label": [0, 1]}), self.folder / "a.parquet")
        job = jobs.run([jobs.program("labelled_texts_program"), str(CLASSES), "", "", "", "1", self.folder / "a.parquet"])
        self.assertEqual(job.exit_code, 3, job)
        self.assertIn("a.parquet', row 1: expected a value in the column 'text', found a null.", job.stderr)


if __name__ == "__main__":
    jobs.require_programs("labelled_texts_program")
    unittest.main()
