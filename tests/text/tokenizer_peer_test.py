"""Tokenizer against Hugging Face's `tokenizers`: ids, offsets and decoded texts are equal.

Runs itself with the project's Python, which has `tokenizers` and `transformers`.
"""

import json
import os
import random
import subprocess
import sys
import unicodedata
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs

LINES = 20000
FEWER_LINES = 4000
CODE_POINTS = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
SEED_VARIABLE = "LIBTRAIN_TEST_SEED"
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]

jobs.require_packages("tokenizers", "transformers")
jobs.require_programs("libtrain-tokenizer", "tokenizer_program")

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

ENGLISH = ("the of and to in is that for it was with as on be at by this have from or had not are but which his they "
           "you I don't we'll it's they've I'm he'd you're John's 'tis rock'n'roll tokenization unbelievable "
           "internationalisation 3.14159 1,000,000 e-mail naïve café Zürich déjà-vu (see below) \"quoted\" -- --- ... "
           "!!! ?!").split(" ")
PIECES = ["👩‍👩‍👧‍👦", "👍🏽", "🏳️‍🌈", "🇩🇪🇫🇷", "e\u0301", "a\u0300\u0301\u0302\u0327", "שלום עולם", "مرحبا بالعالم",
          "\u202babc\u202c", "नमस्ते", "สวัสดี", "こんにちは世界", "한국어", "\u1112\u1161\u11ab", "Ω≈ç√∫", "½⅓٣४",
          "\ufeff", "\u200b", "\u200d", "\u00ad", "\u180e", "\u0085", "\u2028", "\u3000", "\u00a0", "\ufffd",
          "<mask>", " <mask>  ", "<s>", "</s>", "<pad>x", "<unk>", "<", "<mas", "<mask", "<<mask>>", "Ġ", "Ċ",
          "\x00", "\x01\x1f\x7f", "\t", "\r\n", "\n\n", "\v\f", "'s", "'S", "'ll", "'re", "' ve", "''", "'"]


def seed():
    return int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().getrandbits(32))


class Texts:
    """Random texts, as bytes."""

    def __init__(self, number):
        self.rng = random.Random(number)
        blocks = range(0, 0x110000, 0x80)
        self.blocks = [start for start in blocks if not 0xD800 <= start < 0xE000]
        self.named = [start for start in self.blocks
                      if any(unicodedata.category(chr(code)) != "Cn" for code in range(start, start + 0x80))]
        self.at = 0

    def word(self):
        rng = self.rng
        kind = rng.randrange(12)
        if kind < 5:
            return rng.choice(ENGLISH)
        if kind == 5:
            return "".join(chr(rng.randrange(0x80)) for _ in range(rng.randint(1, 8)))
        if kind == 6:
            return " " * rng.randint(1, 9)
        if kind == 7:
            return "".join(rng.choice(" \t\n\r\u00a0\u3000\u2009\x85x") for _ in range(rng.randint(1, 8)))
        if kind == 8:
            start = rng.choice(self.named)
            return "".join(chr(start + rng.randrange(0x80)) for _ in range(rng.randint(1, 12)))
        if kind == 9:
            return chr(rng.choice(CODE_POINTS)) + rng.choice(["", "a", "1", " "])
        return rng.choice(PIECES)

    def text(self):
        rng = self.rng
        glue = rng.choice([" ", " ", " ", "", "  ", "\n"])
        return glue.join(self.word() for _ in range(rng.choice([0, 1, 2, 5, 10, 30])))

    def block(self):
        """Characters of the next of Unicode's blocks, by and by of all of them."""
        start = self.blocks[self.at % len(self.blocks)]
        self.at += 1
        return " ".join("".join(chr(start + self.rng.randrange(0x80)) for _ in range(6)) for _ in range(3))

    def damaged(self):
        data = bytearray(self.text().encode())
        for _ in range(self.rng.randint(1, 5)):
            if not data:
                break
            at = self.rng.randrange(len(data))
            kind = self.rng.randrange(3)
            if kind == 0:
                data[at] = self.rng.randrange(256)
            elif kind == 1:
                del data[at:at + self.rng.randint(1, 3)]
            else:
                data[at:at] = bytes(self.rng.choice([0x80, 0xBF, 0xC0, 0xC2, 0xE0, 0xED, 0xA0, 0xF0, 0xF4, 0x90, 0xFF])
                                    for _ in range(self.rng.randint(1, 4)))
        return bytes(data)

    def line(self):
        kind = self.rng.randrange(10)
        if kind < 6:
            return self.text().encode()
        return self.block().encode() if kind < 8 else self.damaged()


def train(texts, vocabulary_size=1500, min_frequency=2, special_tokens=SPECIAL, add_prefix_space=False):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary_size, min_frequency=min_frequency, special_tokens=special_tokens,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator([text.decode(errors="replace") for text in texts], trainer)
    return tokenizer


def as_roberta(tokenizer, add_prefix_space=False, trim_offsets=True):
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=False)])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=trim_offsets,
                                                            add_prefix_space=add_prefix_space)
    return tokenizer


def byte_ends(data):
    """For each character of the repaired text, and its end, the position in the bytes."""
    ends = [0]
    at = 0
    while at < len(data):
        # The decoder stops at the first byte that is wrong, and says how many belong together.
        try:
            valid = data[at:].decode()
            end = len(data)
        except UnicodeDecodeError as error:
            valid = data[at:at + error.start].decode()
            end = at + error.end
        for character in valid:
            ends.append(ends[-1] + len(character.encode()))
        if ends[-1] != end:
            ends.append(end)
        at = end
    return ends


class Case:
    """A text or a pair with the options of its encoding."""

    def __init__(self, first, second=None, limit=None, special=True):
        self.texts = [first] if second is None else [first, second]
        self.limit = limit
        self.special = special

    def words(self):
        limit = "-" if self.limit is None else self.limit
        return " ".join([str(limit), str(int(self.special)), *(text.hex() or "-" for text in self.texts)])

    def expected(self, tokenizer):
        if self.limit is None:
            tokenizer.no_truncation()
        else:
            tokenizer.enable_truncation(self.limit)
        encoding = tokenizer.encode(*(text.decode(errors="replace") for text in self.texts),
                                    add_special_tokens=self.special)
        ends = [byte_ends(text) for text in self.texts]
        offsets = [[0, 0] if sequence is None else [ends[sequence][begin], ends[sequence][end]]
                   for sequence, (begin, end) in zip(encoding.sequence_ids, encoding.offsets, strict=True)]
        return {"ids": encoding.ids, "offsets": offsets, "truncated": bool(encoding.overflowing),
                "text": tokenizer.decode(encoding.ids).encode().hex(),
                "whole_text": tokenizer.decode(encoding.ids, skip_special_tokens=False).encode().hex()}


class TokenizerPeerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.seed = seed()
        texts = Texts(cls.seed)
        cls.lines = [texts.line() for _ in range(FEWER_LINES)]
        cls.trained = train(cls.lines).to_str()

    def setUp(self):
        self.folder = jobs.temporary_directory(self)
        self.tokenizer = Tokenizer.from_str(self.trained)

    def encode(self, cases, name=""):
        input_file = self.folder / "input"
        input_file.write_text("".join(case.words() + "\n" for case in cases))
        with input_file.open() as texts:
            done = subprocess.run([jobs.program("tokenizer_program"), self.folder / name], stdin=texts,
                                  capture_output=True, timeout=250, check=False)
        self.assertEqual(done.returncode, 0, done.stderr.decode()[-2000:])
        return [json.loads(line) for line in done.stdout.splitlines()]

    def require_equal(self, cases, tokenizer=None, name=""):
        tokenizer = tokenizer or self.tokenizer
        if not name:
            tokenizer.no_truncation()
            tokenizer.save(str(self.folder / "tokenizer.json"))
        found = self.encode(cases, name)
        self.assertEqual(len(found), len(cases))
        for case, ours in zip(cases, found, strict=True):
            theirs = case.expected(tokenizer)
            second = ours.pop("second")
            self.assertTrue(0 <= second <= len(ours["ids"]))
            if ours != theirs:
                parts = [f"{key}: {ours[key]} instead of {theirs[key]}" for key in theirs if ours[key] != theirs[key]]
                self.fail(f"{SEED_VARIABLE}={self.seed}: {[text[:200] for text in case.texts]}, limit {case.limit}, "
                          f"special {case.special}\n" + "\n".join(parts)[:3000])

    def test_lines_as_roberta(self):
        self.require_equal([Case(line) for line in self.lines], as_roberta(self.tokenizer))

    def test_many_lines(self):
        texts = Texts(self.seed + 1)
        self.require_equal([Case(texts.line()) for _ in range(LINES)], as_roberta(self.tokenizer))

    def require_equal_for_characters(self, codes):
        """As letters, digits, marks or spaces beside others, with and without a space in front."""
        codes = list(codes)
        lines = (codes[start:start + 64] for start in range(0, len(codes), 64))
        self.require_equal([Case("".join(f"{chr(code)}a {chr(code)}1{chr(code)}!" for code in line).encode())
                            for line in lines], as_roberta(self.tokenizer))

    def test_characters(self):
        self.require_equal_for_characters(code for code in CODE_POINTS if code % 97 == self.seed % 97 or code < 0x3100)

    def test_every_character(self):
        self.require_equal_for_characters(CODE_POINTS)

    def test_lines_with_a_space_in_front(self):
        self.require_equal([Case(line) for line in self.lines[:2000]], as_roberta(self.tokenizer, add_prefix_space=True))
        self.require_equal([Case(line) for line in self.lines[:1000]],
                           as_roberta(self.tokenizer, add_prefix_space=True, trim_offsets=False))

    def test_truncated_lines_and_pairs(self):
        rng = random.Random(self.seed)
        cases = []
        for first in self.lines[:2000]:
            special = rng.random() < 0.8
            second = rng.choice([None, rng.choice(self.lines)])
            least = 0 if not special else 2 if second is None else 4
            limit = rng.choice([None, least, least + 1, rng.randint(least, 20), rng.randint(least, 100)])
            cases.append(Case(first, second, limit, special))
        self.require_equal(cases, as_roberta(self.tokenizer))

    def test_long_texts(self):
        texts = Texts(self.seed)
        rng = texts.rng
        size = 1 << 20
        self.require_equal([Case(text[:size]) for text in (
            " ".join(texts.text() for _ in range(30000)).encode(),
            b"a" * size, b" " * size, ("\u3000" * size).encode(), b"\n" * size + b"x", b"!" * size,
            "".join(rng.choice("abcdeé") for _ in range(size)).encode(), b"1" * size, b"<" * size, b"\xff" * 1000,
            bytes(rng.randrange(256) for _ in range(1 << 17)))], as_roberta(self.tokenizer))

    def test_as_gpt2(self):
        """Without tokens around a text; by a template, by ByteLevel and by nothing."""
        cases = [Case(line, second) for line, second in zip(self.lines[:500], [None, *self.lines[1:500]])]
        template = processors.TemplateProcessing(single="<s> $A <unk> </s>", pair="$A </s> <pad> $B:1 <s>",
                                                 special_tokens=[(token, SPECIAL.index(token)) for token in SPECIAL])
        for processor in (None, template, processors.ByteLevel(trim_offsets=False),
                          processors.ByteLevel(trim_offsets=True, add_prefix_space=False),
                          processors.ByteLevel(trim_offsets=True, add_prefix_space=True)):
            with self.subTest(processor=str(processor)):
                tokenizer = Tokenizer.from_str(self.trained)
                if processor:
                    tokenizer.post_processor = processor
                self.require_equal(cases, tokenizer)

    def test_added_tokens(self):
        """With white space, within words, normalized or not, some of them beyond the vocabulary of the model."""
        rng = random.Random(self.seed)
        contents = ["<a>", "<ab>", "foo", "foobar", "bar", "é", " x", "x ", "日本", "<mask>", "the", "of the", "_",
                    "<s", "\t", "🏽"]
        for number in range(20):
            tokenizer = Tokenizer.from_str(self.trained)
            for content in rng.sample(contents, rng.randint(1, 8)):
                flags = {name: rng.random() < 0.4 for name in ("lstrip", "rstrip", "single_word", "normalized")}
                flags["lstrip"] &= not content[0].isspace()  # where tokenizers panics on "foo \t\t"
                tokenizer.add_tokens([AddedToken(content, special=rng.random() < 0.3, **flags)])
            tokenizer = as_roberta(tokenizer, add_prefix_space=rng.random() < 0.5)
            glue = [" ", "", "  ", "\n", "_", "\u0301", "\u200d", "x", "\u3000"]
            texts = ["".join(rng.choice(contents + ENGLISH[:20]) + rng.choice(glue) for _ in range(rng.randint(0, 12)))
                     for _ in range(200)]
            with self.subTest(number=number):
                self.require_equal([Case(text.encode()) for text in texts], tokenizer)

    def test_vocabulary_and_merges(self):
        self.tokenizer.model.save(str(self.folder))
        self.require_equal([Case(line) for line in self.lines[:2000]], as_roberta(self.tokenizer), name=".")
        self.assertFalse((self.folder / "tokenizer.json").exists())

    def test_folders_of_transformers(self):
        """As save_pretrained writes them, with tokens that are added, and as its version 4 did."""
        os.environ["HF_HUB_OFFLINE"] = "1"
        from transformers import PreTrainedTokenizerFast, RobertaTokenizer

        cases = [Case(line + b" <mask>  new <e>x") for line in self.lines[:200]]
        self.tokenizer.model.save(str(self.folder))
        mask = AddedToken("<mask>", lstrip=True, special=True, normalized=False)
        roberta = RobertaTokenizer(vocab=str(self.folder / "vocab.json"), merges=str(self.folder / "merges.txt"),
                                   mask_token=mask)
        for name in ("roberta", "added"):
            roberta.save_pretrained(self.folder / name)
            self.require_equal(cases, roberta._tokenizer, name)
            roberta.add_tokens(["new"])
            roberta.add_special_tokens({"extra_special_tokens": ["<e>"]})
        plain = PreTrainedTokenizerFast(tokenizer_object=roberta._tokenizer, pad_token="<pad>", mask_token="<mask>")
        plain.save_pretrained(self.folder / "plain")
        self.require_equal(cases, plain._tokenizer, "plain")

        config_file = self.folder / "roberta" / "tokenizer_config.json"
        config = json.loads(config_file.read_text())
        added = json.loads((self.folder / "roberta" / "tokenizer.json").read_text())["added_tokens"]
        config["added_tokens_decoder"] = {str(token.pop("id")): token for token in added}
        config_file.write_text(json.dumps(config))
        again = RobertaTokenizer.from_pretrained(self.folder / "roberta")
        self.require_equal(cases, again._tokenizer, "roberta")

        # transformers follows added_tokens.json, which is to be refused.
        (self.folder / "plain" / "added_tokens.json").write_text(json.dumps({"<more>": len(plain)}))
        self.assertEqual(PreTrainedTokenizerFast.from_pretrained(self.folder / "plain").encode("<more>")[1], len(plain))
        with self.assertRaisesRegex(AssertionError, "added_tokens.json.*<more>"):
            self.encode(cases, "plain")

    def require_equal_vocabularies(self, lines, **options):
        tokenizer = train(lines, **options)
        tokenizer.model.save(str(self.folder), "theirs")
        file = self.folder / "lines"
        # With a byte order mark and ends of Windows, which are not of the texts: those may begin and end with their like.
        file.write_bytes(b"\xef\xbb\xbf" + b"".join(line + b"\r\n" for line in lines))
        words = ["--vocabulary-size", options["vocabulary_size"], "--min-frequency", options["min_frequency"],
                 *(f"--special-token={token}" for token in options["special_tokens"]), "--threads", 2]
        if options["add_prefix_space"]:
            words.append("--add-prefix-space")
        output = self.folder / "ours"
        job = jobs.run([jobs.program("libtrain-tokenizer"), "train", output, file, "--force", *words])
        self.assertEqual(job.exit_code, 0, job)
        message = f"{SEED_VARIABLE}={self.seed}: {options}"
        ours, theirs = (json.loads(path.read_text()) for path in (output / "vocab.json", self.folder / "theirs-vocab.json"))
        self.assertEqual(ours, theirs, message)
        merges = (output / "merges.txt").read_text()
        self.assertEqual(merges, (self.folder / "theirs-merges.txt").read_text(), message)
        whole = Tokenizer.from_file(str(output / "tokenizer.json"))
        self.assertEqual(whole.get_vocab(), tokenizer.get_vocab(), message)
        again = self.encode([Case(line) for line in lines[:300]], "ours")
        for line, encoding in zip(lines, again):
            self.assertEqual(encoding["ids"], whole.encode(line.decode(errors="replace")).ids, message)
        return len(merges)

    def test_trained_vocabularies(self):
        texts = Texts(self.seed)
        rng = texts.rng
        merges = 0
        for number in range(12):
            kind = number % 3
            if kind == 0:
                lines = [line.replace(b"\n", b" ") for line in rng.sample(self.lines, 1500)]
            elif kind == 1:  # ties, runs, and tokens that several merges make
                lines = ["".join(rng.choice("aaab ") for _ in range(rng.randint(0, 60))).encode() for _ in range(300)]
            else:
                lines = [" ".join(rng.choices(ENGLISH, k=rng.randint(0, 30))).encode() for _ in range(500)]
            special_tokens = rng.choice([SPECIAL, SPECIAL[:3], ["<|endoftext|>"], ["<s>", "</s>", "the", "a"]])
            with self.subTest(number=number):
                merges += self.require_equal_vocabularies(
                    lines, vocabulary_size=rng.randint(262, 3000), min_frequency=rng.choice([0, 1, 2, 5, 50]),
                    special_tokens=special_tokens, add_prefix_space=rng.random() < 0.3)
        self.assertGreater(merges, 1000)


if __name__ == "__main__":
    unittest.main()
