"""Writes English-like lines, and a tokenizer.json that is trained on the first of them, the same for the same options, for
the benchmark of the tokenizer. Needs `tokenizers`.

The text is generated: no corpus comes with libtrain. Its words follow Zipf's law, with the steeper fall beyond the
first 6,000 that English has (Ferrer i Cancho and Sole, 2001); the most frequent ones are English, the others are made of
syllables. There are commas, quotation marks, brackets, contractions, names, hyphens, numbers and a
few accents, and lines of one to five sentences.
"""

import argparse
import itertools
import pathlib
import random

FREQUENT = """the of and to in a is that for it was with as on be at by this have from or had not are but which his they you
were her she there been one all we their has would when if who what so can more no out up into do any your some could them
other than then its time only about may like these two over also after first new our me my must such see most before even
because through where much how should people many those state good being between under never same another while last
might great year against just world life still work us three without always both water during system something
number""".split()
SUFFIXES = ["", "", "", "", "s", "s", "ed", "ing", "ly", "er", "tion", "al", "ness", "able", "ment", "ity"]
CONTRACTIONS = ["I'm", "don't", "it's", "we'll", "they've", "you're", "he'd", "can't", "isn't", "that's"]
ONSETS = ["", "b", "c", "d", "f", "g", "h", "l", "m", "n", "p", "r", "s", "t", "w", "br", "ch", "cl", "gr", "pl", "pr",
          "qu", "sh", "sp", "st", "th", "tr"]
NUCLEI = ["a", "e", "i", "o", "u", "a", "e", "i", "o", "ea", "ee", "io", "ou", "ai"]
CODAS = ["", "", "", "n", "r", "s", "t", "l", "d", "nd", "nt", "st", "ck", "m", "rt"]
WORD_TYPES = 120000
CORE_WORDS = 6000
TRAINING_SHARE = 0.2


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="for texts.txt and tokenizer.json")
    parser.add_argument("--megabytes", type=float, default=50, help="of text (default: 50)")
    parser.add_argument("--vocabulary-size", type=int, default=50000, help="(default: 50000)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.megabytes <= 0 or options.vocabulary_size < 300:
        parser.error("--megabytes must be above 0, and --vocabulary-size at least 300")
    return options


class Writer:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        words = list(dict.fromkeys([*FREQUENT, *(self.made_word() for _ in range(WORD_TYPES))]))
        self.words = words
        self.weights = list(itertools.accumulate(map(self.weight, range(len(words)))))

    @staticmethod
    def weight(rank):
        return 1 / (rank + 2.7) if rank < CORE_WORDS else CORE_WORDS / (rank + 2.7) ** 2

    def made_word(self):
        rng = self.rng
        syllables = rng.choices([1, 2, 3, 4], [3, 5, 3, 1])[0]
        word = "".join(rng.choice(ONSETS) + rng.choice(NUCLEI) + rng.choice(CODAS) for _ in range(syllables))
        if rng.random() < 0.005:
            word = word.replace("e", "é", 1)
        return word + rng.choice(SUFFIXES)

    def decorated(self, word):
        rng = self.rng
        chance = rng.random()
        if chance < 0.80:
            return word
        if chance < 0.87:
            return word + ","
        if chance < 0.91:
            return word.capitalize()
        if chance < 0.93:
            return rng.choice(CONTRACTIONS)
        if chance < 0.95:
            return str(rng.choice([rng.randint(1, 99), rng.randint(1900, 2030), rng.randint(1000, 999999)]))
        if chance < 0.96:
            return f'"{word}"'
        if chance < 0.97:
            return f"({word})"
        if chance < 0.98:
            return word + "'s"
        return word + rng.choice(["-" + rng.choice(FREQUENT), ";", ":", " -", "..."])

    def line(self):
        rng = self.rng
        sentences = []
        for _ in range(rng.randint(1, 5)):
            words = rng.choices(self.words, cum_weights=self.weights, k=max(3, round(rng.gauss(19, 8))))
            words = [self.decorated(word) for word in words]
            sentences.append(words[0][:1].upper() + " ".join(words)[1:] + rng.choice(".....?!"))
        return " ".join(sentences)


def write_texts(options):
    """Writes texts.txt, and returns the lines to train on."""
    writer = Writer(options.seed)
    most = options.megabytes * 1e6
    written = 0
    training = []
    with (options.folder / "texts.txt").open("w", encoding="utf-8") as file:
        while written < most:
            line = writer.line()
            file.write(line + "\n")
            if written < TRAINING_SHARE * most:
                training.append(line)
            written += len(line.encode()) + 1
    return training


def main():
    from tokenizers import AddedToken, ByteLevelBPETokenizer, processors

    options = parse_arguments()
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        write_texts(options), vocab_size=options.vocabulary_size, min_frequency=2, show_progress=False,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True, special=True)])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True,
                                                            add_prefix_space=False)
    tokenizer.save(str(options.folder / "tokenizer.json"))


if __name__ == "__main__":
    main()
