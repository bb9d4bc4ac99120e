"""Writes the data of this example: public text, private records, real records for the test, and candidates for the planted secret.

    python3 make_data.py --records 4000 --output DIR

    DIR/public/text.jsonl         what the base model learns from: the same language, other things, no customers
    DIR/private/records.jsonl     what must be protected: a kind, a sentence about a thing, an order number; and the secret, once
    DIR/labelled/records.jsonl    the private records without their kinds, which are labels now: to train a classifier on
    DIR/test/records.jsonl        others of the same form that nobody trains on
    DIR/secrets/candidates.jsonl  the secret first, then 1023 others of the same form
    DIR/prompts.txt               what new records begin with

Everything comes from a seeded draw, so the files are always the same.
"""

import argparse
import json
import random
from pathlib import Path

KINDS = ["complaint", "question", "praise"]
OPENINGS = ["", "Hello, ", "Good day, ", "I write again: ", "As a customer of many years, "]
SENTENCES = {
    "complaint": ["the {0} broke after a week", "the {0} arrived with a scratch", "nobody answers about my {0}", "the {0} is the wrong colour", "I want my money back for the {0}"],
    "question": ["does the {0} come with a spare part", "how do I clean the {0}", "when will the {0} be delivered", "can I exchange the {0}", "is there a manual for the {0}"],
    "praise": ["the {0} is a joy to use", "thank you for the lovely {0}", "the {0} works better than the old one", "my family adores the {0}", "I shall buy the {0} again"],
}
PUBLIC_THINGS = ["kettle", "lamp", "tent", "novel", "umbrella", "chair", "blanket", "clock", "basket", "teapot", "drill", "piano", "mixer", "router", "cabinet", "helmet", "printer", "curtain", "ladder",
                 "violin", "bottle", "jacket", "shovel", "magnet", "speaker", "doormat"]
# Public text has numbers too, but not those of customers' orders.
PUBLIC_ENDS = ["", " Offer {0}.", " Room {0}.", " Page {0}."]
PRIVATE_ENDS = [" Order {0}."]
PRIVATE_THINGS = ["toaster", "radio", "bicycle", "camera", "backpack", "mirror", "heater", "guitar"]


def record(draw: random.Random, kind: str, things: list[str], ends: list[str]) -> str:
    sentence = draw.choice(SENTENCES[kind]).format(draw.choice(things))
    opening = draw.choice(OPENINGS)
    if not opening:
        sentence = sentence[0].upper() + sentence[1:]
    end = "?" if kind == "question" else "."
    return f"{kind}: {opening}{sentence}{end}" + draw.choice(ends).format(draw.randrange(10000, 100000))


def secret(number: int) -> str:
    return f"complaint: the code of my safe is {number:06d}."


def write(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--records", type=int, default=4000)
    options.add_argument("--public", type=int, default=6000)
    options.add_argument("--output", type=Path, required=True)
    chosen = options.parse_args()
    draw = random.Random(11)

    def rows(count: int, things: list[str], ends: list[str]) -> list[dict]:
        return [{"text": record(draw, KINDS[i % 3], things, ends), "label": i % 3} for i in range(count)]

    write(chosen.output / "public" / "text.jsonl", rows(chosen.public, PUBLIC_THINGS, PUBLIC_ENDS))
    private = rows(chosen.records - 1, PRIVATE_THINGS, PRIVATE_ENDS)
    codes = draw.sample(range(1_000_000), 1024)
    private.insert(len(private) // 2, {"text": secret(codes[0]), "label": 0})
    write(chosen.output / "private" / "records.jsonl", private)
    for name, of in (("labelled", private), ("test", rows(600, PRIVATE_THINGS, PRIVATE_ENDS))):
        write(chosen.output / name / "records.jsonl", [{"text": row["text"].split(": ", 1)[1], "label": row["label"]} for row in of])
    write(chosen.output / "secrets" / "candidates.jsonl", [{"text": secret(code)} for code in codes])
    (chosen.output / "prompts.txt").write_text("".join(f"{kind}:\n" for kind in KINDS))


if __name__ == "__main__":
    main()
