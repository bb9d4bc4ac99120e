"""Which folder of src/ may know which, checked (docs/architecture.md).

An include never runs up the order below. Folders of one line may know each other, in one direction. Beside it, three rules of the same kind:
the environment is read in src/cli and src/comm/launch only, sources take ATen's small headers and not torch/torch.h, and a .cu file includes
no LibTorch header at all.
"""

import re
import sys
from pathlib import Path

ORDER = [  # lowest first
    ["base"],
    ["tensor"],
    ["comm"],
    ["kernels", "nn"],
    ["models", "profile"],
    ["optim", "data"],
    ["shard", "privacy"],
    ["step"],
    ["train", "plan"],
    ["suite", "report"],
    ["cli"],
]
LEVEL = {folder: level for level, folders in enumerate(ORDER) for folder in folders}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
SOURCES = Path(__file__).resolve().parent.parent / "src"


def cycle(edges: dict[str, set[str]]) -> list[str]:
    """A closed path in the graph, or an empty list."""
    done: set[str] = set()

    def walk(node: str, path: list[str]) -> list[str]:
        if node in path:
            return path[path.index(node) :] + [node]
        if node in done:
            return []
        for following in sorted(edges.get(node, ())):
            found = walk(following, path + [node])
            if found:
                return found
        done.add(node)
        return []

    for start in sorted(edges):
        found = walk(start, [])
        if found:
            return found
    return []


def main() -> int:
    wrong: list[str] = []
    folders: dict[str, set[str]] = {}
    headers: dict[str, set[str]] = {}
    for path in sorted(SOURCES.rglob("*")):
        if path.suffix not in {".h", ".cpp", ".cu", ".cuh"}:
            continue
        name = path.relative_to(SOURCES).as_posix()
        folder = name.split("/")[0]
        if folder not in LEVEL:
            wrong.append(f"src/{name}: folder '{folder}' has no place in the order of scripts/check_layers.py")
            continue
        text = path.read_text()
        for bracket, included in INCLUDE.findall(text):
            target = included.split("/")[0]
            if bracket == '"' and target in LEVEL:
                if LEVEL[target] > LEVEL[folder]:
                    wrong.append(f"src/{name}: includes {included}, but {target} lies above {folder}")
                if target != folder:
                    folders.setdefault(folder, set()).add(target)
                if path.suffix in {".h", ".cuh"}:
                    headers.setdefault(name, set()).add(included)
            if included in {"torch/torch.h", "torch/extension.h", "ATen/ATen.h"}:
                wrong.append(f"src/{name}: includes {included}; take ATen/core/Tensor.h and ATen/ops/<op>.h")
            if path.suffix in {".cu", ".cuh"} and target in {"torch", "ATen", "c10"}:
                wrong.append(f"src/{name}: includes {included}; a .cu file takes plain pointers")
        if "getenv(" in text and folder != "cli" and not name.startswith("comm/launch"):
            wrong.append(f"src/{name}: reads the environment; only src/cli and src/comm/launch do")
    for what, edges in (("folders", folders), ("headers", headers)):
        found = cycle(edges)
        if found:
            wrong.append(f"{what} in a circle: {' -> '.join(found)}")
    for line in wrong:
        print(f"layers: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
