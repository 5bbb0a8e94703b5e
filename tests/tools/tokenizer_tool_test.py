"""libtrain-tokenizer: encodes, decodes and trains, from files and standard input, and refuses what it cannot read."""

import json
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs

USAGE, ENVIRONMENT = 2, 3
TOOL = "libtrain-tokenizer"
LINES = ["the quick brown fox", "jumps over the lazy dog", "", "the <mask> fox — déjà vu", "  two  spaces "]


class TokenizerTool(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = jobs.temporary_directory(cls)
        cls.texts = cls.folder / "texts"
        cls.texts.write_text("".join(line + "\n" for line in LINES))
        many = cls.folder / "many"
        many.write_text("".join(line + "\n" for line in LINES * 20))
        cls.tokenizer = cls.folder / "tokenizer"
        cls.trained = jobs.run([jobs.program(TOOL), "train", cls.tokenizer, many, "--vocabulary-size", 300, "--json"])

    def run_tool(self, *words, stdin=None, expected=0):
        """What the tool prints, in lines; or the one line of its error."""
        done = subprocess.run([jobs.program(TOOL), *map(str, words)], input=stdin or b"", capture_output=True, timeout=60,
                              check=False)
        self.assertEqual(done.returncode, expected, done.stderr)
        if expected:
            (line,) = done.stderr.decode().splitlines()
            return line
        return done.stdout.decode().splitlines()

    def test_train_writes_a_tokenizer(self):
        self.assertEqual(self.trained.exit_code, 0, self.trained)
        told = json.loads(self.trained.stdout)
        self.assertEqual((told["lines"], told["tokens"]), (100, 300))
        vocabulary = json.loads((self.tokenizer / "vocab.json").read_text())
        self.assertEqual(list(vocabulary.values()), list(range(300)))
        self.assertEqual(len((self.tokenizer / "merges.txt").read_text().splitlines()), 1 + 300 - 261)

    def test_train_replaces_files_only_if_told(self):
        error = self.run_tool("train", self.tokenizer, self.texts, expected=USAGE)
        self.assertIn("--force", error)
        folder = self.folder / "forced"
        for force in ((), ("--force",)):
            self.run_tool("train", folder, "--special-token=<pad>", "--special-token=<s>", *force, stdin=b"aa aa\naa")
        self.assertEqual(json.loads((folder / "vocab.json").read_text())["<s>"], 1)
        self.assertEqual((folder / "merges.txt").read_text(), "#version: 0.2\na a\n")

    def test_what_is_encoded_is_decoded(self):
        ids = self.run_tool("encode", self.tokenizer, self.texts)
        self.assertEqual(len(ids), len(LINES))
        self.assertEqual(ids[2], "0 2")
        stdin = "".join(line + "\n" for line in ids).encode()
        decoded = self.run_tool("decode", self.tokenizer, stdin=stdin)
        # <mask> takes the space before it along, and is left out.
        self.assertEqual(decoded, [line.replace(" <mask>", "") for line in LINES])
        whole = self.run_tool("decode", self.tokenizer, "-", "--special-tokens", "--json", stdin=stdin)
        self.assertEqual(json.loads(whole[3]), {"text": "<s>the<mask> fox — déjà vu</s>"})

    def test_lines_come_in_their_order_with_any_number_of_threads(self):
        many = b"".join(b"line %d of many\n" % number for number in range(5000))
        one = self.run_tool("encode", self.tokenizer, "--threads", 1, stdin=many)
        self.assertEqual(one, self.run_tool("encode", self.tokenizer, "--threads", 3, stdin=many))
        self.assertEqual(len(set(one)), 5000)
        self.assertEqual(self.run_tool("encode", self.tokenizer, self.texts, self.texts),
                         2 * self.run_tool("encode", self.tokenizer, stdin=self.texts.read_bytes()))

    def test_line_ends_and_a_byte_order_mark_are_not_of_the_texts(self):
        windows = self.folder / "windows"
        windows.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(LINES).encode())
        plain = self.run_tool("encode", self.tokenizer, self.texts)
        self.assertEqual(self.run_tool("encode", self.tokenizer, windows, windows), 2 * plain)
        self.assertEqual(self.run_tool("encode", self.tokenizer, stdin=windows.read_bytes()), plain)
        # Only one of each, where it belongs.
        left = self.run_tool("encode", self.tokenizer, stdin=b"a\n\xef\xbb\xbfa\r\r\n")
        self.assertEqual(self.run_tool("decode", self.tokenizer, "--json", stdin=left[1].encode()),
                         [json.dumps({"text": "\ufeffa\r"}, ensure_ascii=False, separators=(",", ":"))])
        for name, texts in (("lf", b"aa ab\naa\n"), ("crlf", b"\xef\xbb\xbfaa ab\r\naa\r\n")):
            self.run_tool("train", self.folder / name, "--min-frequency", 1, stdin=texts)
        merges = [self.folder / name / "merges.txt" for name in ("lf", "crlf")]
        self.assertEqual(*(path.read_text() for path in merges))

    def test_options_of_encode(self):
        (line,) = self.run_tool("encode", self.tokenizer, "--json", "--offsets", "--max-tokens", 4, stdin=b"the fox jumps")
        told = json.loads(line)
        self.assertEqual(len(told["ids"]), 4)
        self.assertTrue(told["truncated"])
        self.assertEqual(told["offsets"][0], [0, 0])
        self.assertEqual(told["offsets"][1][0], 0)
        self.assertEqual(self.run_tool("encode", self.tokenizer, "--json", "--no-special-tokens", stdin=b"\n"),
                         ['{"ids":[],"truncated":false}'])
        self.assertEqual(self.run_tool("encode", self.tokenizer), [])

    def test_refusals_name_file_and_line(self):
        self.assertIn("'absent'", self.run_tool("encode", self.tokenizer, "absent", expected=ENVIRONMENT))
        self.assertIn(str(self.folder), self.run_tool("encode", self.tokenizer, self.folder, expected=ENVIRONMENT))
        self.assertIn("vocab.json", self.run_tool("encode", self.folder, self.texts, expected=ENVIRONMENT))
        self.assertIn("--json", self.run_tool("encode", self.tokenizer, "--offsets", expected=USAGE))
        self.assertIn("line 2: 'x'", self.run_tool("decode", self.tokenizer, stdin=b"5 6\n7 x\n", expected=ENVIRONMENT))
        ids = self.folder / "ids"
        ids.write_text("5 6\n5 300\n")
        self.assertRegex(self.run_tool("decode", self.tokenizer, ids, expected=USAGE), f"File '{ids}', line 2: .* id 300")
        self.assertRegex(self.run_tool("encode", self.tokenizer, "--max-tokens", 1, "--threads", 1, stdin=b"x\ny",
                                       expected=USAGE), "Standard input, line 1: max_tokens is 1")
        self.assertIn("261", self.run_tool("train", self.folder / "new", "--vocabulary-size", 3, expected=USAGE))
        self.assertIn("--help", self.run_tool("tokenize", expected=USAGE))


if __name__ == "__main__":
    jobs.require_programs(TOOL)
    unittest.main()
