"""Tests of what the documentation names: the README's program is the one that is compiled, links and files exist."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md",
             ROOT / "tests" / "README.md",
             *sorted((ROOT / "docs").glob("*.md"))]
PROGRAM = ROOT / "examples" / "first_program" / "first_program.cpp"
FROM_PYTORCH = ROOT / "docs" / "coming-from-pytorch.md"
LOOP = ROOT / "examples" / "mnist" / "mnist_loop.cpp"
SNIPPETS = ROOT / "tests" / "train" / "coming_from_pytorch_test.cpp"

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
# A file of the checkout, wherever it is named: in a sentence, in code or in a command. Paths with a <placeholder> in
# them, and paths that go on (build/release/bin/digits), are none.
NAMED_FILE = re.compile(
    r"(?<![\w/.<>-])((?:\.ci|bench|cmake|docs|examples|libtrain|scripts|tests|tools)/[\w./-]*\w)(?![\w/<>*{-])")
NAMED_SUFFIXES = {".cmake", ".cpp", ".hpp", ".md", ".py", ".sh", ".txt"}


def anchor(heading):
    """The id that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(text):
    return {anchor(heading) for heading in HEADING.findall(FENCED.sub("", text))}


def is_relative(link):
    return not re.match(r"[a-z]+:", link)


def broken_links(document):
    """The relative links of a document that lead to no file, folder or heading."""
    text = document.read_text(encoding="utf-8")
    for link in filter(is_relative, LINK.findall(FENCED.sub("", text))):
        path, _, heading = link.partition("#")
        target = document.parent / path if path else document
        if not target.exists() or (heading and heading not in anchors(target.read_text(encoding="utf-8"))):
            yield link


def code_of(document, wanted):
    """The blocks of one language."""
    return [code for language, code in FENCED.findall(document.read_text(encoding="utf-8")) if language == wanted]


def without_layout(code):
    return " ".join(code.split())


def missing_files(document):
    """The files of the checkout that a document names and that are not there."""
    for name in sorted(set(NAMED_FILE.findall(document.read_text(encoding="utf-8")))):
        is_file = Path(name).suffix in NAMED_SUFFIXES or name == ".ci/run"
        if is_file and not (ROOT / name).is_file():
            yield name


class Documents(unittest.TestCase):
    def test_the_first_program_of_the_readme_is_the_compiled_one(self):
        self.assertEqual(code_of(ROOT / "README.md", "cpp")[:1], [PROGRAM.read_text(encoding="utf-8")])

    def test_the_code_of_the_page_for_pytorchs_users_is_compiled(self):
        program, *snippets = code_of(FROM_PYTORCH, "cpp")
        self.assertEqual(program, LOOP.read_text(encoding="utf-8"))
        self.assertGreater(len(snippets), 3)
        compiled = without_layout(SNIPPETS.read_text(encoding="utf-8"))
        for snippet in snippets:
            self.assertIn(without_layout(snippet), compiled)

    def test_links_lead_somewhere(self):
        for document in DOCUMENTS:
            with self.subTest(document=document.name):
                self.assertEqual(list(broken_links(document)), [])

    def test_named_files_exist(self):
        for document in DOCUMENTS:
            with self.subTest(document=document.name):
                self.assertEqual(list(missing_files(document)), [])

    def test_named_scripts_can_be_started(self):
        for document in DOCUMENTS:
            names = NAMED_FILE.findall(document.read_text(encoding="utf-8"))
            for name in sorted({name for name in names if name.startswith("scripts/") and name.endswith(".sh")}):
                if name != "scripts/lib.sh":  # sourced by the others
                    with self.subTest(document=document.name, script=name):
                        self.assertTrue((ROOT / name).stat().st_mode & 0o111, "not executable")


class Checks(unittest.TestCase):
    """The checks themselves see what they are for."""

    def test_files_are_found_in_sentences_and_commands(self):
        text = "`scripts/demo.sh`, LIBTRAIN_PRESET=debug scripts/test.sh. See libtrain/base/detail/redact.hpp; bash .ci/run"
        self.assertEqual(NAMED_FILE.findall(text),
                         ["scripts/demo.sh", "scripts/test.sh", "libtrain/base/detail/redact.hpp", ".ci/run"])

    def test_placeholders_and_build_products_are_not_files(self):
        text = "libtrain/models/<model>.cpp build/debug/bin/digits <libtrain/base/error.hpp> .deps/bin/cmake"
        self.assertEqual([name for name in NAMED_FILE.findall(text) if Path(name).suffix], [])

    def test_headings_have_the_anchors_of_github(self):
        self.assertEqual(anchors("# What works, today?\n```sh\n# no heading\n```\n## A `b`-c\n"),
                         {"what-works-today", "a-b-c"})

    def test_addresses_elsewhere_are_left_alone(self):
        self.assertFalse(is_relative("https://example.org/x"))
        self.assertTrue(is_relative("docs/launch.md#torchrun"))


if __name__ == "__main__":
    unittest.main()
