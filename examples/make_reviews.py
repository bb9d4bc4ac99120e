"""Writes examples/reviews: short invented reviews with a label, for trying out sequence classification.

    python3 examples/make_reviews.py                             # examples/reviews: 360
    python3 examples/make_reviews.py --count 12000 --output DIR  # more of them, for private training (docs/privacy.md)

Labels: 0 displeased, 1 indifferent, 2 pleased. The sentences are put together from parts by a seeded draw, so the files are always the same.
"""

import argparse
import json
import random
from pathlib import Path

THINGS = ["kettle", "lamp", "tent", "bicycle", "novel", "soup", "umbrella", "radio", "chair", "camera", "backpack", "hotel", "concert", "blanket", "toaster", "museum"]
OPENINGS = ["", "Honestly, ", "After a month of use: ", "A gift from my aunt. ", "I ordered it in spring. ", "Second try. ", "To be fair, ", "In short: "]
VERDICTS = {
    0: ["the {0} broke on the second day", "I would not give this {0} to anyone", "the {0} was a waste of money", "this is the worst {0} I have known",
        "the {0} was nothing like its description", "I sent the {0} back", "the {0} smelled of glue", "I am disappointed by the {0}"],
    1: ["the {0} does what it says", "it is a {0} like any other", "the {0} is neither good nor bad", "I have no strong feelings about the {0}",
        "the {0} is all right for the price", "the {0} is about what I had expected", "an ordinary {0}", "the {0} will do for now"],
    2: ["the {0} is a joy", "I would buy this {0} again at once", "this {0} is better than I had hoped", "the {0} is beautifully made",
        "I recommend the {0} to everyone", "the {0} has made my year", "a splendid {0}", "I cannot stop praising this {0}"],
}
ENDINGS = {
    0: ["Never again.", "Nobody answered my letters.", "Save your money.", "My neighbour had the same trouble.", "It lies in the cellar now.", "Two stars too many."],
    1: ["That is all.", "I may keep it.", "There is not much more to say.", "Delivery took a week.", "The colour is grey.", "Ask me again in a year."],
    2: ["Thank you!", "My neighbour wants one as well.", "Worth every penny.", "I use it each day.", "Five stars.", "Even the cat likes it."],
}


def review(draw: random.Random, label: int) -> str:
    opening, verdict = draw.choice(OPENINGS), draw.choice(VERDICTS[label]).format(draw.choice(THINGS))
    if not opening or opening.endswith(". "):
        verdict = verdict[0].upper() + verdict[1:]
    return f"{opening}{verdict}. {draw.choice(ENDINGS[label])}"


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--count", type=int, default=360)
    options.add_argument("--output", type=Path, default=Path(__file__).parent / "reviews")
    options.add_argument("--seed", type=int, default=7)
    chosen = options.parse_args()
    draw = random.Random(chosen.seed)
    chosen.output.mkdir(parents=True, exist_ok=True)
    seen: set[str] = set()
    rows = []
    while len(rows) < chosen.count:
        label = len(rows) % 3
        text = review(draw, label)
        if text not in seen:
            seen.add(text)
            rows.append({"text": text, "label": label})
    draw.shuffle(rows)
    half = chosen.count // 2
    for name, part in (("first", rows[:half]), ("second", rows[half:])):
        (chosen.output / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))


if __name__ == "__main__":
    main()
