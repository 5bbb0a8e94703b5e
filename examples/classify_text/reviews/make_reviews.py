#!/usr/bin/env python3
"""usage: make_reviews.py FOLDER

Writes train.tsv and dev.tsv: short reviews, each positive or negative, made by rules that single words do not tell:
negation ("not bad at all"), contrast (what follows "but" decides), and expectations that turn out otherwise. No review
of dev.tsv is in train.tsv. The files of this folder are what it writes.
"""

import random
import sys
from pathlib import Path

TRAINING, HELD_OUT = 4000, 800

# Each kind of thing: its names, its parts, and words that only fit it, good and bad.
THINGS = [
    (["film", "movie", "sequel", "documentary"], ["plot", "acting", "ending", "soundtrack", "dialogue", "editing"],
     ["gripping", "moving", "hilarious", "suspenseful"], ["predictable", "tedious", "confusing", "overlong"]),
    (["book", "novel", "biography", "collection of stories"], ["plot", "prose", "ending", "first chapter", "translation"],
     ["gripping", "witty", "insightful", "moving"], ["predictable", "tedious", "clumsy", "dull"]),
    (["restaurant", "cafe", "pizzeria", "food truck"], ["food", "service", "soup", "dessert", "coffee", "wine list"],
     ["delicious", "fresh", "tasty", "generous"], ["bland", "stale", "greasy", "overpriced"]),
    (["hotel", "hostel", "guest house", "campsite"], ["room", "bed", "breakfast", "view", "staff", "shower"],
     ["comfortable", "spotless", "quiet", "friendly"], ["dirty", "noisy", "cramped", "rude"]),
    (["phone", "laptop", "camera", "headset"], ["battery", "screen", "keyboard", "sound", "software", "case"],
     ["fast", "reliable", "sturdy", "bright"], ["slow", "flimsy", "unreliable", "buggy"]),
    (["concert", "festival", "play", "exhibition"], ["sound", "stage", "lighting", "audience", "opening act"],
     ["thrilling", "memorable", "lively", "moving"], ["boring", "chaotic", "tiresome", "underwhelming"]),
    (["course", "workshop", "lecture", "tutorial"], ["teacher", "material", "pace", "final project", "handout"],
     ["clear", "inspiring", "useful", "well organised"], ["confusing", "pointless", "outdated", "badly organised"]),
]
GOOD = ["good", "great", "excellent", "wonderful", "fantastic", "superb", "brilliant", "impressive", "lovely", "amazing",
        "outstanding", "enjoyable", "pleasant", "charming", "perfect", "delightful"]
BAD = ["bad", "terrible", "awful", "poor", "horrible", "disappointing", "mediocre", "dreadful", "annoying", "weak",
       "unpleasant", "frustrating", "lousy", "pathetic", "ugly", "depressing"]
STRONG = ["really", "absolutely", "truly", "very", "so", "quite", "simply", "surprisingly", "remarkably"]
LIKED = ["loved", "enjoyed", "adored", "liked", "was delighted by", "was impressed by"]
LIKES = ["love", "enjoy", "adore", "like"]
DISLIKES = ["hate", "dislike", "regret", "cannot stand"]
DISLIKED = ["hated", "disliked", "regretted", "could not stand", "was let down by", "was bored by"]
NEUTRAL = ["I went with two friends.", "It was a rainy Tuesday.", "We stayed for three hours.", "My sister told me about it.",
           "I read about it in the newspaper.", "We paid in advance.", "It is close to the station.", "I am 42 years old.",
           "This was our second visit.", "The address was easy to find."]
POSITIVE_ENDS = ["I would recommend it to anyone.", "We will come back.", "Worth every penny.", "Five stars.",
                 "I cannot wait for the next one.", "You will not regret it.", "What a treat!", "No complaints.",
                  "I would stay here again.", "I want more of this."]
NEGATIVE_ENDS = ["I would not recommend it to anyone.", "We will not come back.", "A waste of money.", "One star.",
                 "I want my money back.", "You will regret it.", "What a mess!", "Never again.",
                  "I would not stay here again.", "It was not what I had hoped for."]


class Reviews:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def choose(self, words):
        return self.random.choice(words)

    def quality(self, thing, positive):
        """An adjective, negated or not, such as "really good" or "not bad at all"."""
        words = lambda good: self.choose(thing[2] + GOOD if good else thing[3] + BAD)
        kind = self.random.random()
        if kind < 0.4:
            return words(positive)
        if kind < 0.65:
            return f"{self.choose(STRONG)} {words(positive)}"
        if kind < 0.85:
            return self.choose(["not {}", "not {} at all", "never {}", "not very {}"]).format(words(not positive))
        return self.choose(["anything but {}", "far from {}", "by no means {}"]).format(words(not positive))

    def feeling(self, thing, positive):
        """What somebody felt, such as "I did not enjoy the ending"."""
        subject = self.choose(["I", "We", "My brother", "Everyone at our table", "My wife", "The whole family"])
        part = self.choose([f"the {self.choose(thing[1])}", f"this {self.choose(thing[0])}", "every minute of it", "it"])
        if self.random.random() < 0.2:
            return f"{self.choose(['I', 'We'])} {self.choose(LIKES if positive else DISLIKES)} {part}"
        if self.random.random() < 0.7:
            verb = self.choose(LIKED if positive else DISLIKED)
            return f"{subject} {verb.replace('was', 'were') if subject == 'We' else verb} {part}"
        if positive:
            return f"{subject} could not {self.choose(['find fault with', 'get enough of', 'stop talking about'])} {part}"
        return f"{subject} did not {self.choose(['enjoy', 'like', 'care for'])} {part}"

    def clause(self, thing, positive):
        if self.random.random() < 0.3:
            return self.feeling(thing, positive)
        part = self.choose([f"the {self.choose(thing[1])}", f"this {self.choose(thing[0])}"])
        return f"{part} {self.choose(['was', 'was', 'is', 'seemed'])} {self.quality(thing, positive)}"

    def contrast(self, thing, positive):
        """Two clauses, of which one decides."""
        decides, other = self.clause(thing, positive), self.clause(thing, not positive)
        thing_name = self.choose(thing[0])
        good, bad = self.choose(GOOD), self.choose(BAD)
        return self.choose([
            f"{other}, but {decides}", f"{other}; however, {decides}", f"although {other}, {decides}",
            f"{decides}, even though {other}", f"despite what I had read, {decides}",
            f"I expected {with_article(bad if positive else good)} {thing_name}, but {decides}",
            f"my friends had called it {bad if positive else good}, yet {decides}",
            f"the {thing_name} was {'better' if positive else 'worse'} than I had {self.choose(['hoped', 'feared', 'expected'])}",
        ])

    def fragment(self, thing, positive):
        """Without a verb, such as "great food and a friendly staff"."""
        first, second = self.quality(thing, positive), self.quality(thing, positive)
        part, other = self.random.sample(thing[1], 2)
        return self.choose([first, f"{first} and {second}", f"{first} {part}", f"{first} {part}, {second} {other}",
                            f"{self.choose(GOOD if positive else BAD)} value, {first} {part}"])

    def review(self):
        positive = self.random.random() < 0.5
        thing = self.choose(THINGS)
        kind = self.random.random()
        make = self.contrast if kind < 0.4 else self.fragment if kind < 0.55 else self.clause
        sentence = make(thing, positive)
        sentence = lower_after_comma(sentence)
        text = sentence[0].upper() + sentence[1:] + self.choose([".", ".", "!"])
        kind = self.random.random()
        if kind < 0.2:
            text = f"{self.choose(NEUTRAL)} {text}"
        elif kind < 0.3:
            text = f"{text} {self.choose(NEUTRAL)}"
        elif kind < 0.45:
            text = f"{text} {self.choose(POSITIVE_ENDS if positive else NEGATIVE_ENDS)}"
        return text.lower() if self.random.random() < 0.1 else text, "positive" if positive else "negative"


def with_article(adjective):
    return f"{'an' if adjective[0] in 'aeiou' else 'a'} {adjective}"


def lower_after_comma(sentence):
    """Subjects that began a sentence, in the middle of one."""
    for subject in ("We ", "My ", "Everyone ", "The "):
        sentence = sentence[0] + sentence[1:].replace(subject, subject.lower())
    return sentence


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    reviews, seen = Reviews(seed=22), {}
    while len(seen) < TRAINING + HELD_OUT:
        text, label = reviews.review()
        seen.setdefault(text, label)
    lines = [f"{text}\t{label}\n" for text, label in seen.items()]
    for name, part in (("train", lines[:TRAINING]), ("dev", lines[TRAINING:])):
        (Path(sys.argv[1]) / f"{name}.tsv").write_text("sentence\tlabel\n" + "".join(part))


if __name__ == "__main__":
    main()
