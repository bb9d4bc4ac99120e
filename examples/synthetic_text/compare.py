"""Writes the page of this example from what run.sh left in its folder. All figures look at the private records: they are not private.

    python3 compare.py DIR      reads DIR/data, DIR/written_*.jsonl, DIR/secrets_*.jsonl, DIR/accuracy_*.json; writes DIR/index.html and DIR/figures.json
"""

import html
import json
import math
import re
import sys
from pathlib import Path

KINDS = ["complaint", "question", "praise"]


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def grams(text: str, n: int = 5) -> set[str]:
    return {text[i:i + n] for i in range(max(1, len(text) - n + 1))}


def nearest(texts: list[str], real: list[str]) -> list[float]:
    """For each text the largest Jaccard similarity of 5-grams with a real record; 1 is a copy."""
    sets = [grams(text) for text in real]
    index: dict[str, list[int]] = {}
    for i, one in enumerate(sets):
        for gram in one:
            index.setdefault(gram, []).append(i)
    found = []
    for text in texts:
        own, shared = grams(text), {}
        for gram in own:
            for i in index.get(gram, ()):
                shared[i] = shared.get(i, 0) + 1
        found.append(max((count / (len(own) + len(sets[i]) - count) for i, count in shared.items()), default=0.0))
    return found


def words(texts: list[str]) -> set[str]:
    return {word for text in texts for word in re.findall(r"[a-z]+", text.lower())}


def quantiles(values: list[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered[min(len(ordered) - 1, int(q * len(ordered)))] for q in (0.05, 0.25, 0.5, 0.75, 0.95)]


def exposure(losses: list[dict]) -> float:
    """log2(candidates) - log2(rank of the secret, which is the first)."""
    totals = [row["loss"] * row["tokens"] for row in losses]
    rank = 1 + sum(total < totals[0] for total in totals[1:])
    return math.log2(len(totals)) - math.log2(rank)


def main() -> None:
    folder = Path(sys.argv[1])
    private = [row["text"] for row in lines(folder / "data" / "private" / "records.jsonl")]
    numbers = set(re.findall(r"Order (\d{5})", " ".join(private)))
    vocabulary = words(private)
    secret = lines(folder / "data" / "secrets" / "candidates.jsonl")[0]["text"]
    figures = []
    for path in sorted(folder.glob("written_*.jsonl"), key=lambda p: float(p.stem.split("_")[1])):
        name = path.stem.split("_")[1]
        texts = [(row["prompt"] + row["text"]).strip() for row in lines(path)]
        close = nearest(texts, private)
        statement = folder / f"tuned_{name}" / "privacy.json"
        spent = json.loads(statement.read_text()) if statement.exists() else {}
        figures.append({
            "epsilon": name, "spent": spent.get("epsilon"), "delta": spent.get("delta"), "records": len(texts), "length": quantiles([len(text) for text in texts]),
            "words": len(words(texts)), "real_words": len(words(texts) & vocabulary) / max(1, len(words(texts))), "nearest": quantiles(close),
            "copies": sum(value >= 0.999 for value in close),
            "order_numbers": sum(bool(numbers & set(re.findall(r"\d{5}", text))) for text in texts),
            "secret_written": sum(secret.split(": ", 1)[1] in text for text in texts),
            "exposure": exposure(lines(folder / f"secrets_{name}.jsonl")),
            "accuracy": json.loads((folder / f"accuracy_{name}.json").read_text())["models"][0]["accuracy"],
            "examples": [text for text in texts[:: max(1, len(texts) // 6)]][:6],
        })
    real = {"length": quantiles([len(text) for text in private]), "words": len(vocabulary),
            "accuracy": json.loads((folder / "accuracy_real.json").read_text())["models"][0]["accuracy"]}
    # of order numbers in as many real numbers drawn blindly
    chance = len(numbers) / 90000
    (folder / "figures.json").write_text(json.dumps({"not_private": True, "real": real, "models": figures}, indent=1) + "\n")
    (folder / "index.html").write_text(page(figures, real, len(private), chance))
    print(f"{'epsilon':>8} {'accuracy':>9} {'exposure':>9} {'nearest':>8} {'copies':>7} {'orders':>7}")
    for f in figures:
        print(f"{f['epsilon']:>8} {f['accuracy']:>9.3f} {f['exposure']:>9.2f} {f['nearest'][2]:>8.3f} {f['copies']:>7} {f['order_numbers']:>7}")
    print(f"{'real':>8} {real['accuracy']:>9.3f}")
    print(f"page      {folder / 'index.html'}")


def bars(title: str, unit: str, rows: list[tuple[str, float]], top: float, note: str) -> str:
    out = [f"<h3>{title}</h3><p>{note}</p><svg viewBox='0 0 640 {28 * len(rows) + 4}' role='img' aria-label='{html.escape(title)}'>"]
    for i, (name, value) in enumerate(rows):
        width = 420 * min(1.0, value / top) if top > 0 else 0
        out.append(f"<text x='110' y='{28 * i + 20}' text-anchor='end'>{html.escape(name)}</text>"
                   f"<rect x='120' y='{28 * i + 6}' width='{width:.1f}' height='18' fill='{'#8a8f98' if name == 'real records' else '#2f6db5'}'/>"
                   f"<text x='{126 + width:.1f}' y='{28 * i + 20}'>{value:.3g}{unit}</text>")
    return "".join(out) + "</svg>"


def page(figures: list[dict], real: dict, records: int, chance: float) -> str:
    label = lambda f: "not private" if f["epsilon"] == "inf" else f"epsilon {f['epsilon']}"
    table = "".join(
        f"<tr><td>{label(f)}</td><td>{'' if f['spent'] is None else format(f['spent'], '.3f')}</td><td>{f['records']}</td><td>{f['length'][0]}, <b>{f['length'][2]}</b>, {f['length'][4]}</td>"
        f"<td>{f['words']}</td><td>{100 * f['real_words']:.0f} %</td><td>{f['nearest'][2]:.2f}, {f['nearest'][4]:.2f}</td><td>{f['copies']}</td><td>{f['order_numbers']}</td>"
        f"<td>{f['secret_written']}</td><td>{f['exposure']:.1f}</td><td>{100 * f['accuracy']:.1f} %</td></tr>" for f in figures)
    texts = "".join(f"<h3>{label(f)}</h3><ul>" + "".join(f"<li>{html.escape(text)}</li>" for text in f["examples"]) + "</ul>" for f in figures)
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Synthetic text from private records</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1c1e21}}table{{border-collapse:collapse;font-size:14px}}
td,th{{border-bottom:1px solid #d5d8dc;padding:.3rem .5rem;text-align:right}}td:first-child,th:first-child{{text-align:left}}svg{{max-width:640px;width:100%;font-size:14px}}
.warning{{background:#fff4d6;padding:.6rem 1rem;border-left:4px solid #d69e00}}</style>
<h1>Synthetic text from private records</h1>
<p>A small language model was fine-tuned with LoRA on {records} records at several budgets. Each model then wrote new records.</p>
{"<p class='warning'>This is the small version: the models have hardly learned, and the figures only show that everything runs.</p>" if records < 1000 else ""}
<p class="warning"><b>Not private.</b> Every figure below compares with the private records themselves. Keep this page with the records. The written records may be shared.</p>
{bars("Is the text useful?", "", [(label(f), f["accuracy"]) for f in figures] + [("real records", real["accuracy"])], 1, "Accuracy on real records of a classifier trained on the written ones (three kinds of record; guessing gives 0.33).")}
{bars("Is the planted secret exposed?", " bits", [(label(f), f["exposure"]) for f in figures], 10, "Exposure of a secret that occurs once among the records: 0 bits, as unlikely as any other secret; 10 bits, the most likely of 1024.")}
{bars("Are records copied?", "", [(label(f), f["nearest"][4]) for f in figures], 1, "Similarity of a written record with its nearest training record (5-grams, 1 is a copy), 95th percentile.")}
<h2>All figures</h2>
<table><tr><th>model</th><th>epsilon spent</th><th>records</th><th>characters (5 %, median, 95 %)</th><th>words</th><th>of them real</th><th>nearest record (median, 95 %)</th><th>copies</th>
<th>with a real order number</th><th>secret written</th><th>exposure, bits</th><th>accuracy</th></tr>{table}
<tr><td>real records</td><td></td><td>{records}</td><td>{real["length"][0]}, <b>{real["length"][2]}</b>, {real["length"][4]}</td><td>{real["words"]}</td><td></td><td></td><td></td><td></td><td></td><td></td><td>{100 * real["accuracy"]:.1f} %</td></tr></table>
<p>A number of five digits drawn blindly is a real order number in {100 * chance:.1f} % of the cases.</p>
<h2>What the models wrote</h2>{texts}</html>
"""


if __name__ == "__main__":
    main()
