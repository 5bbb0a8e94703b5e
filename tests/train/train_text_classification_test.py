"""train_text_classification learns from texts, on any number of ranks, killed or not; classify_text uses what it has
learnt, as does transformers; and both refuse what they cannot use.
"""

import json
import random
import shutil
import signal
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import jobs

jobs.require_packages("safetensors", "scipy", "sklearn", "tokenizers", "torch", "transformers")

import scipy.stats
import sklearn.metrics
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, RobertaForMaskedLM, RobertaForSequenceClassification

USAGE, ENVIRONMENT, STOPPED = 2, 3, 5
REVIEWS = jobs.ROOT / "examples/classify_text/reviews"
MODEL = REVIEWS / "model"
ACCURACY = 0.95  # on reviews that are held out


def write_tsv(path, rows, header=("sentence", "label")):
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in (header, *rows)))


def read_tsv(path):
    return [line.split("\t") for line in path.read_text().splitlines()[1:]]


class OnTexts(unittest.TestCase):
    def setUp(self):
        self.folder = jobs.temporary_directory(self)
        self.output = self.folder / "output"
        self.data = self.folder / "data"
        self.data.mkdir()

    def run_it(self, *options, ranks=2, tokenizer=MODEL, time_limit=120, meanwhile=None):
        command = [jobs.program("train_text_classification"), "--recipe", "reviews", "--data", self.data, "--tokenizer",
                   tokenizer, "--output", self.output, "--threads", 1, "--precision", "float32", "--quiet", *options]
        return jobs.run(command, ranks=ranks, time_limit=time_limit, meanwhile=meanwhile)

    def train(self, *options, **how):
        job = self.run_it(*options, **how)
        self.assertEqual((job.exit_code, job.reports(), job.left_over), (0, [], ()), job)
        return job

    def records(self, event):
        lines = (self.output / "metrics.jsonl").read_text().splitlines()
        return [record for record in map(json.loads, lines) if record["event"] == event]

    def classify(self, weights, texts, *options):
        lines = self.folder / "texts"
        lines.write_text("".join(text + "\n" for text in texts))
        job = jobs.run(["bash", "-c", 'exec "$@" < ' + str(lines), "bash", jobs.program("classify_text"), "--json",
                        "--weights", weights, *options])
        self.assertEqual(job.exit_code, 0, job)
        rows = json.loads(job.stdout)
        self.assertEqual([row["text"] for row in rows], texts)
        return rows

    def logits_of_transformers(self, weights, texts):
        model, tokenizer = RobertaForSequenceClassification.from_pretrained(weights), AutoTokenizer.from_pretrained(weights)
        with torch.no_grad():
            return model.eval()(**tokenizer(texts, padding=True, truncation=True, return_tensors="pt")).logits


class Training(OnTexts):
    """With a network of small weights, whose numbers say more than what it has learnt."""

    def setUp(self):
        super().setUp()
        rows = read_tsv(REVIEWS / "dev.tsv")
        write_tsv(self.data / "train.tsv", rows[:64])
        # A third of the labels are wrong, so that a text that is missed or repeated changes the metrics.
        other = {"negative": "positive", "positive": "negative"}
        write_tsv(self.data / "dev.tsv", [(text, label if number % 3 else other[label])
                                          for number, (text, label) in enumerate(rows[64:101])])

    def test_an_evaluation_over_ranks_is_that_of_all_texts(self):
        # Of texts that are cut, here and by all that uses the folder of the network.
        self.train("--weights", MODEL, "--epochs", 1, "--learning-rate", "1e-5", "--batch-size", 4, "--max-length", 9,
                   ranks=2)
        evaluation = self.records("evaluation")[-1]
        rows = read_tsv(self.data / "dev.tsv")
        texts, labels = [text for text, _ in rows], [label for _, label in rows]
        found = self.classify(self.output / "model", texts)
        self.assertTrue(any(row.get("truncated") for row in found))
        predicted = [row["label"] for row in found]
        self.assertAlmostEqual(evaluation["accuracy"], sklearn.metrics.accuracy_score(labels, predicted), delta=1e-9)
        self.assertAlmostEqual(evaluation["f1"], sklearn.metrics.f1_score(labels, predicted, pos_label="positive"),
                               delta=1e-9)
        self.assertAlmostEqual(evaluation["matthews"], sklearn.metrics.matthews_corrcoef(labels, predicted), delta=1e-9)

        # The folder is one of Hugging Face's, too.
        expected = self.logits_of_transformers(self.output / "model", texts)
        self.assertLess((torch.tensor([row["logits"] for row in found]) - expected).abs().max(), 1e-5)
        config = RobertaForSequenceClassification.from_pretrained(self.output / "model").config
        self.assertEqual(config.id2label, {0: "negative", 1: "positive"})

        # Again, without texts to learn; and with other names for the same classes.
        weights = self.folder / "weights"
        shutil.move(self.output / "model", weights)
        shutil.rmtree(self.output)
        numbers = {"negative": 0, "positive": 1}
        write_tsv(self.data / "numbers.tsv", [(text, numbers[label]) for text, label in rows])
        for ranks, options in (1, ()), (3, ("--dev", "numbers.tsv", "--classes", "0,1")):
            self.train("--weights", weights, "--train", "none.tsv", "--test-only", *options, ranks=ranks,
                       tokenizer=weights)
            (again,) = self.records("evaluation")
            for name in "accuracy", "f1", "matthews":
                self.assertAlmostEqual(again[name], evaluation[name], delta=1e-9)
            self.assertEqual(sorted(path.name for path in self.output.iterdir()), ["logs", "metrics.jsonl"])
            shutil.rmtree(self.output)

    def test_pairs_with_numbers(self):
        rows = read_tsv(REVIEWS / "dev.tsv")[:48]
        pairs = [(a, b, len(a) / 100) for (a, _), (b, _) in zip(rows[::2], rows[1::2])]
        for split, part in (("train", pairs[:13]), ("dev", pairs[13:])):
            write_tsv(self.data / f"{split}.tsv", part, ("sentence1", "sentence2", "score"))
        self.train("--task", "regression", "--epochs", 2, "--batch-size", 4)
        evaluation = max(self.records("evaluation"), key=lambda record: record["pearson"])
        held_out = pairs[13:]
        found = self.classify(self.output / "model", [f"{a}\t{b}" for a, b, _ in held_out], "--pairs")
        predicted, wanted = [row["logits"][0] for row in found], [number for *_, number in held_out]
        self.assertAlmostEqual(evaluation["pearson"], scipy.stats.pearsonr(predicted, wanted)[0], delta=1e-4)
        self.assertAlmostEqual(evaluation["spearman"], scipy.stats.spearmanr(predicted, wanted)[0], delta=1e-4)

    def test_several_labels(self):
        rows = [(text, ",".join(name for name, word in (("food", "the"), ("place", "was"), ("time", "a"))
                                if word in text.lower().split())) for text, _ in read_tsv(REVIEWS / "dev.tsv")[:96]]
        write_tsv(self.data / "train.tsv", rows[:64], ("text", "labels"))
        write_tsv(self.data / "dev.tsv", rows[64:], ("text", "labels"))
        self.train("--task", "multi-label", "--epochs", 3, "--batch-size", 8)
        found = self.classify(self.output / "model", [text for text, _ in rows[64:]])
        classes = ["food", "place", "time"]

        def matrix(labels):
            return [[name in row for name in classes] for row in labels]

        wanted, predicted = matrix(row.split(",") for _, row in rows[64:]), matrix(row["labels"] for row in found)
        self.assertAlmostEqual(max(record["f1"] for record in self.records("evaluation")),
                               sklearn.metrics.f1_score(wanted, predicted, average="micro", zero_division=0), delta=1e-9)

    def test_masked_language_modelling_makes_a_folder_to_begin_with(self):
        lines = [text for text, _ in read_tsv(REVIEWS / "dev.tsv")]
        (self.data / "train.txt").write_text("\n".join(lines[:64]) + "\n")
        (self.data / "dev.txt").write_text("\n".join(lines[64:96]) + "\n")
        self.train("--objective", "mlm", "--train", "train.txt", "--dev", "dev.txt", "--epochs", 2, "--batch-size", 8)
        losses = [record["mlm_loss"] for record in self.records("evaluation")]
        self.assertLess(losses[-1], losses[0])
        RobertaForMaskedLM.from_pretrained(self.output / "model")
        language_model = self.folder / "language_model"
        shutil.move(self.output / "model", language_model)
        shutil.rmtree(self.output)
        self.train("--weights", language_model, "--epochs", 1)

    def test_a_text_without_a_masked_token_does_not_change_the_loss(self):
        lines = [text for text, _ in read_tsv(REVIEWS / "dev.tsv")]
        (self.data / "train.txt").write_text("\n".join(lines[:16]) + "\n")
        losses = []
        for more in ("", "</s>\n"):
            (self.data / "dev.txt").write_text(" ".join(lines[16:24]) + "\n" + more)
            self.output = self.folder / f"output-{len(losses)}"
            self.train("--objective", "mlm", "--train", "train.txt", "--dev", "dev.txt", "--epochs", 1, "--batch-size", 1,
                       "--seed", 3, ranks=1)
            losses += [record["mlm_loss"] for record in self.records("evaluation")]
        self.assertGreater(losses[0], 1)
        self.assertAlmostEqual(losses[1], losses[0], delta=1e-6)

    def test_batches_by_tokens_on_two_ranks_are_those_of_one_process(self):
        lines = [text for text, _ in read_tsv(REVIEWS / "dev.tsv")]
        (self.data / "lines.txt").write_text("".join(
            (line * 6 if number % 9 == 0 else line) + "\n" for number, line in enumerate(lines[:64])))
        mlm = ["--objective", "mlm", "--train", "lines.txt", "--dev", ""]
        for options in ([], mlm):
            with self.subTest(options=options):
                states = {}
                for ranks, tokens in ((1, 300), (2, 150)):
                    self.output = self.folder / f"{len(options)}-{ranks}"
                    self.train("--weights", MODEL, "--epochs", 1, "--max-tokens", tokens, "--dropout", 0,
                               "--learning-rate", "1e-3", "--seed", 3, *options, ranks=ranks)
                    self.assertGreater(self.records("summary")[-1]["steps"], 3)
                    states[ranks] = load_file(self.output / "model/model.safetensors")
                # What is not in the weights is new, and then the same: it is made from the seed by rank 0.
                for name, one in states[1].items():
                    if name.endswith("key.bias"):
                        continue  # its gradient is 0 but for rounding, which Adam makes steps of
                    self.assertLess((one - states[2][name]).norm() / (1e-3 + one.norm()), 2e-4, name)

    def test_a_classifier_of_the_same_classes_is_kept(self):
        self.train("--weights", MODEL, "--epochs", 1, "--learning-rate", "1e-12")
        before, after = load_file(MODEL / "model.safetensors"), load_file(self.output / "model/model.safetensors")
        self.assertLess((before["classifier.dense.weight"] - after["classifier.dense.weight"]).abs().max(), 1e-6)
        shutil.rmtree(self.output)
        for split in ("train", "dev"):
            write_tsv(self.data / f"{split}.tsv", [(text, "no" if label == "negative" else "yes")
                                                  for text, label in read_tsv(self.data / f"{split}.tsv")])
        self.train("--weights", MODEL, "--epochs", 1, "--learning-rate", "1e-12")
        after = load_file(self.output / "model/model.safetensors")
        self.assertGreater((before["classifier.dense.weight"] - after["classifier.dense.weight"]).abs().max(), 1e-3)


def reversed_tokenizer(folder):
    """That of MODEL, with the same number of tokens and the same special ones, and other ids for the rest."""
    folder.mkdir()
    content = json.loads((MODEL / "tokenizer.json").read_text())
    special = [token["content"] for token in content["added_tokens"]]
    ids = {token: number for token, number in content["model"]["vocab"].items() if token not in special}
    content["model"]["vocab"] |= zip(ids, reversed(ids.values()))
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder


class Refusals(OnTexts):
    def setUp(self):
        super().setUp()
        self.rows = read_tsv(REVIEWS / "dev.tsv")[:16]
        for split in ("train", "dev"):
            write_tsv(self.data / f"{split}.tsv", self.rows)

    def require_refusal(self, exit_code, options, *words, **how):
        jobs.require_refusal(self, self.run_it("--epochs", 1, *options, **{"ranks": None, **how}), exit_code, *words)

    def test_of_texts(self):
        train, dev = self.data / "train.tsv", self.data / "dev.tsv"
        write_tsv(dev, [*self.rows, ("New", "neutral")])
        self.require_refusal(ENVIRONMENT, [], dev, "line 18", "'neutral'", "negative, positive", ranks=2)
        write_tsv(dev, self.rows)
        self.require_refusal(USAGE, ["--label-column", "stars"], "stars", "sentence, label")
        train.write_text("")
        self.require_refusal(ENVIRONMENT, [], train)
        (self.data / "train.csv").write_text('sentence,label\n"good,1\nbad" one,0\n')
        self.require_refusal(ENVIRONMENT, ["--train", "train.csv"], "train.csv", "line 3")
        write_tsv(train, [*self.rows, ("word " * 400, "positive")])
        self.require_refusal(ENVIRONMENT, ["--long-texts", "refuse"], train, "line 18", "tokens")
        self.train("--epochs", 1, "--long-texts", "leave-out", ranks=None)
        shutil.rmtree(self.output)
        for path in (train, dev):
            write_tsv(path, [(text, "positive") for text, _ in self.rows])
        self.require_refusal(USAGE, [], "'positive'", "two classes")
        for path in (train, dev):
            write_tsv(path, self.rows)
        self.require_refusal(ENVIRONMENT, ["--train", "none.tsv"], "none.tsv")
        self.require_refusal(USAGE, ["--classes", "negative,,positive"], "empty name")
        self.require_refusal(USAGE, ["--max-length", 4], "--max-length is 4")
        write_tsv(dev, [(text, text, label) for text, label in self.rows], ("sentence1", "sentence2", "label"))
        self.require_refusal(USAGE, [], "single texts", "--dev")

    def test_of_models(self):
        self.require_refusal(USAGE, ["--model", "huge"], "huge", "base")
        self.require_refusal(USAGE, ["--model", ""], "--weights")
        other = self.folder / "other"
        shutil.copytree(MODEL, other)
        config = json.loads((other / "config.json").read_text())
        (other / "config.json").write_text(json.dumps(config | {"vocab_size": 17}))
        self.require_refusal(USAGE, ["--weights", other], "17")
        (other / "config.json").write_text(json.dumps(config | {"model_type": "bert"}))
        self.require_refusal(ENVIRONMENT, ["--weights", other], "bert")
        self.require_refusal(USAGE, ["--test-only"], "--test-only", "--weights")
        self.require_refusal(USAGE, ["--weights", MODEL, "--test-only", "--task", "regression"], "--task regression")
        self.require_refusal(USAGE, ["--weights", MODEL, "--test-only", "--classes", "a,b,c"], "2 classes", "--classes")
        self.require_refusal(USAGE, ["--weights", MODEL, "--test-only", "--classes", "positive,negative"],
                             "negative,positive", "another order")
        (other / "config.json").write_text(json.dumps(config))
        (other / "model.safetensors").unlink()
        self.require_refusal(ENVIRONMENT, ["--weights", other], "model.safetensors")

    def test_of_another_tokenizer_than_that_of_the_weights(self):
        options = ("--weights", MODEL, "--test-only")
        other = reversed_tokenizer(self.folder / "other")
        self.require_refusal(USAGE, options, f"'{other}'", f"'{MODEL}'", "token 5", tokenizer=other)
        # A smaller one, such as that of a recipe for weights of RoBERTa base.
        large = self.folder / "large"
        shutil.copytree(MODEL, large)
        tokenizer = json.loads((large / "tokenizer.json").read_text())
        tokenizer["model"]["vocab"]["more"] = len(tokenizer["model"]["vocab"])
        (large / "tokenizer.json").write_text(json.dumps(tokenizer))
        config = json.loads((large / "config.json").read_text())
        (large / "config.json").write_text(json.dumps(config | {"vocab_size": config["vocab_size"] + 1}))
        self.require_refusal(USAGE, ["--weights", large], f"'{MODEL}'", f"'{large}'", "tokens")
        same = self.folder / "same"
        shutil.copytree(MODEL, same)
        self.train(*options, ranks=None, tokenizer=same)
        shutil.rmtree(self.output)
        # Weights without a tokenizer say only which ids are special.
        (same / "tokenizer.json").unlink()
        self.train("--weights", same, "--test-only", ranks=None)
        config = json.loads((same / "config.json").read_text())
        (same / "config.json").write_text(json.dumps(config | {"eos_token_id": 3}))
        self.require_refusal(USAGE, ["--weights", same, "--test-only"], f"'{MODEL}'", f"'{same}'", "</s>")


class Use(OnTexts):
    """classify_text."""

    def test_says_something_at_once(self):
        job = jobs.run([jobs.program("classify_text"), "--weights", MODEL, "The food was not bad at all.",
                        "I was let down by the room!"])
        self.assertEqual((job.exit_code, job.stderr), (0, ""), job)
        self.assertRegex(job.stdout, r"^positive +0\.\d{4}  The food was not bad at all\.\nnegative +0\.\d{4}  I was")

    def test_takes_brackets_as_they_are(self):
        texts = ["[Good food, slow service]", "[]", "good"]
        job = jobs.run([jobs.program("classify_text"), "--json", "--weights", MODEL, *texts])
        self.assertEqual(job.exit_code, 0, job)
        self.assertEqual([row["text"] for row in json.loads(job.stdout)], texts)

    def test_has_the_stated_accuracy(self):
        rows = read_tsv(REVIEWS / "dev.tsv")
        found = self.classify(MODEL, [text for text, _ in rows])
        right = sum(row["label"] == label for row, (_, label) in zip(found, rows, strict=True))
        print(f"accuracy of the weights that are part of libtrain: {right / len(rows):.4f}")
        self.assertGreaterEqual(right / len(rows), ACCURACY)

    def test_cuts_long_texts_and_says_so(self):
        job = jobs.run([jobs.program("classify_text"), "--json", "--weights", MODEL, "good " * 500, "good"])
        self.assertEqual(job.exit_code, 0, job)
        self.assertEqual([row.get("truncated", False) for row in json.loads(job.stdout)], [True, False])
        self.assertIn("1 of 2 texts have more than", job.stderr)

    def test_refusals(self):
        def refusal(*arguments):
            job = jobs.run([jobs.program("classify_text"), *arguments])
            self.assertEqual(len(job.stderr.splitlines()), 1, job)
            return job.exit_code, job.stderr

        self.assertEqual(refusal("--weights", self.folder / "none", "text")[0], ENVIRONMENT)
        code, message = refusal("--weights", MODEL, "--pairs", "one text")
        self.assertEqual(code, USAGE)
        self.assertIn("'one text' has no tab", message)
        other = reversed_tokenizer(self.folder / "other")
        code, message = refusal("--weights", MODEL, "--tokenizer", other, "text")
        self.assertEqual(code, USAGE)
        for part in f"'{other}'", f"'{MODEL}'":
            self.assertIn(part, message)
        same = shutil.copytree(MODEL, self.folder / "same")
        job = jobs.run([jobs.program("classify_text"), "--weights", MODEL, "--tokenizer", same, "text"])
        self.assertEqual(job.exit_code, 0, job)


class Learning(OnTexts):
    """Minutes each."""

    def reviews(self, ranks, folder, batch_size=None, **how):
        self.output = self.folder / str(folder)
        return self.run_it("--batch-size", batch_size or 32 // ranks, ranks=ranks, time_limit=900, **how)

    def accuracy(self):
        return max(record["accuracy"] for record in self.records("evaluation"))

    def use_reviews(self):
        for split in ("train", "dev"):
            shutil.copy(REVIEWS / f"{split}.tsv", self.data)

    def test_ranks_agree(self):
        self.use_reviews()
        accuracies = {}
        for ranks in (1, 2, 4):
            job = self.reviews(ranks, ranks)
            self.assertEqual((job.exit_code, job.left_over), (0, ()), job)
            accuracies[ranks] = self.accuracy()
        print("accuracy by ranks:", accuracies)
        self.assertGreaterEqual(min(accuracies.values()), ACCURACY)
        self.assertLess(max(accuracies.values()) - min(accuracies.values()), 0.01)

    def test_a_killed_run_goes_on_with_other_ranks(self):
        self.use_reviews()

        def kill_in_the_fifth_epoch(process):
            jobs.wait_until(lambda: (self.output / "metrics.jsonl").exists() and len(self.records("epoch")) >= 4, 600)
            process.send_signal(signal.SIGKILL)

        job = self.reviews(2, "killed", meanwhile=kill_in_the_fifth_epoch)
        self.assertNotEqual(job.exit_code, 0)
        job = self.reviews(1, "killed", batch_size=16)  # the same command
        self.assertEqual((job.exit_code, job.left_over), (0, ()), job)
        self.assertGreaterEqual(self.accuracy(), ACCURACY)

    def test_rules(self):
        """That no word by itself tells."""
        words = ["ta", "ke", "mo", "su", "li", "ra", "ne", "po", "du", "fi", "go", "ha"]
        source = random.Random(22)

        def sentence():
            return [source.choice(words) for _ in range(source.randrange(4, 12))]

        def first_equals_last():
            text = sentence()
            if source.random() < 0.5:
                text[-1] = text[0]
            return text, text[0] == text[-1]

        def has_a_pattern():
            text = sentence()
            if source.random() < 0.5:
                at = source.randrange(len(text) - 2)
                text[at:at + 3] = ["mo", "su", "li"]
            return text, "mo su li" in " ".join(text)

        def order_of_two():
            text = [word for word in sentence() if word not in ("ha", "go")] + ["ta", "ke"]
            first, second = sorted(source.sample(range(len(text)), 2))
            words_in_order = source.random() < 0.5
            text[first], text[second] = ("ha", "go") if words_in_order else ("go", "ha")
            return text, words_in_order

        for rule in (first_equals_last, has_a_pattern, order_of_two):
            with self.subTest(rule.__name__):
                seen = {}
                while len(seen) < 9000:
                    text, label = rule()
                    seen[" ".join(text)] = "yes" if label else "no"
                rows = list(seen.items())
                write_tsv(self.data / "train.tsv", rows[:8000])
                write_tsv(self.data / "dev.tsv", rows[8000:])
                self.output = self.folder / rule.__name__
                began = time.monotonic()
                job = self.run_it("--epochs", 40, "--batch-size", 16, "--learning-rate", "1e-3", "--dropout", 0,
                                  ranks=2, time_limit=300)
                self.assertEqual((job.exit_code, job.left_over), (0, ()), job)
                print(f"{rule.__name__}: accuracy {self.accuracy():.4f} in {time.monotonic() - began:.0f} s")
                self.assertGreaterEqual(self.accuracy(), 0.99)


if __name__ == "__main__":
    torch.set_num_threads(1)
    jobs.require_programs("train_text_classification", "classify_text")
    unittest.main()
