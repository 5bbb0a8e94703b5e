"""The commands of README and docs: the programs have every option that the pages give them, and the README's
first program trains."""

import functools
import re
import shlex
import sys
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "scripts")]
import jobs
from readme_test import DOCUMENTS, FENCED

# "train" stands for a program of the user's.
PROGRAMS = {"train": "images", "images": "images", "mnist": "mnist", "libtrain-info": "libtrain-info",
            "libtrain-pack": "libtrain-pack", "libtrain-inspect": "libtrain-inspect",
            "libtrain-checkpoint": "libtrain-checkpoint", "libtrain-tokenizer": "libtrain-tokenizer",
            "train_mask_rcnn": "train_mask_rcnn", "segment": "segment", "make_shapes": "make_shapes",
            "coco_evaluate": "coco_evaluate", "train_text_classification": "train_text_classification",
            "classify_text": "classify_text"}
WITH_COMMANDS = {"libtrain-checkpoint", "libtrain-tokenizer"}  # the word after the name says which of several commands


def commands(document):
    """The commands of a page's blocks as lists of words, without what follows a #."""
    for _, block in FENCED.findall(document.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            try:
                words = shlex.split(line, comments=True)
            except ValueError:
                continue  # a line of a program or of its output
            if words:
                yield words


def parts(words):
    """(name of the program, its command if it has several, its options) where a command starts one that is built."""
    for position, word in enumerate(words):
        name = Path(word).name
        if name in PROGRAMS and (position == 0 or words[0] in ("mpirun", "srun", "torchrun", ".deps/bin/mpirun")):
            begin = position + 1 + (name in WITH_COMMANDS)
            options = [option.partition("=")[0] for option in words[begin:] if option.startswith("--")]
            return name, words[position + 1:begin], options
    return None


@functools.cache
def help_of(program, *command):
    return jobs.run([jobs.program(program), *command, "--help"])


class DocumentedCommands(unittest.TestCase):
    def test_give_programs_options_that_they_have(self):
        checked = set()
        for document in DOCUMENTS:
            for name, command, options in filter(None, map(parts, commands(document))):
                with self.subTest(document=document.name, program=name):
                    known = help_of(PROGRAMS[name], *command)
                    self.assertEqual(known.exit_code, 0, known)
                    for option in options:
                        self.assertRegex(known.stdout, rf"(?<![\w-]){re.escape(option)}(?![\w-])")
                    checked.add(name)
        self.assertEqual(checked, set(PROGRAMS))

    def test_the_first_program_trains_as_the_readme_starts_it(self):
        (words,) = [words for words in commands(DOCUMENTS[0]) if words[0] == "mpirun"]
        self.assertEqual(words[1:4], ["-n", "2", "build/release/bin/first_program"])
        output = jobs.temporary_directory(self)
        job = jobs.run([jobs.program("first_program"), *words[4:], "--output", output], ranks=2, time_limit=200)
        self.assertEqual(job.exit_code, 0, job)
        losses = [float(loss) for loss in re.findall(r"epoch \d: loss ([\d.]+)", job.stderr)]
        self.assertEqual(len(losses), 5, job)
        self.assertLess(losses[-1], 1, job)  # 2.3 before the first step: ten classes by chance


if __name__ == "__main__":
    jobs.require_programs("first_program", *PROGRAMS.values())
    unittest.main()
