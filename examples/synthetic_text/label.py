"""Turns written records into training data of a classifier: the kind that a record was asked for is its label, and is taken off the text.

    python3 label.py WRITTEN.jsonl LABELLED.jsonl
"""

import json
import sys
from pathlib import Path

KINDS = ["complaint", "question", "praise"]
rows = []
for line in Path(sys.argv[1]).read_text().splitlines():
    row = json.loads(line)
    text = row["text"].strip()
    if text:
        rows.append({"text": text, "label": KINDS.index(row["prompt"].rstrip(":"))})
Path(sys.argv[2]).parent.mkdir(parents=True, exist_ok=True)
Path(sys.argv[2]).write_text("".join(json.dumps(row) + "\n" for row in rows))
