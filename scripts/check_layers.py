"""Checks which folder of src/ may include which (docs/architecture.md).

An include never points up the order below. Folders on one line may include each other, in one direction only.
Single files form no cycle either: a file together with the .cpp, .cu or _<backend> files that implement its header
counts as one node, so a header that is clean but whose .cpp includes its own user is found.
Three more rules: only src/cli and src/comm/launch read the environment, sources include ATen's small headers and not
torch/torch.h, and a .cu file includes no LibTorch header at all.
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
    ["engine", "estimate"],
    ["train"],
    ["record"],
    ["run"],
    ["report"],
    ["verify", "suite", "audit"],
    ["cli"],
]
LEVEL = {folder: level for level, folders in enumerate(ORDER) for folder in folders}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
SOURCES = Path(__file__).resolve().parent.parent / "src"


def node_of(name: str, headers: set[str]) -> str:
    """The file itself, or the header it implements: comm/launch_local.cpp belongs to comm/launch.h."""
    stem = name.rsplit(".", 1)[0]
    while True:
        for ending in (".h", ".cuh"):
            if stem + ending in headers:
                return stem + ending
        if "_" not in stem.rsplit("/", 1)[1]:
            return name
        stem = stem.rsplit("_", 1)[0]


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Every group of nodes that reach each other (Tarjan's strongly connected components of two or more)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def walk(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for following in sorted(edges.get(node, ())):
            if following not in index:
                walk(following)
                low[node] = min(low[node], low[following])
            elif following in stack:
                low[node] = min(low[node], index[following])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for start in sorted(edges):
        if start not in index:
            walk(start)
    return found


def main() -> int:
    wrong: list[str] = []
    folders: dict[str, set[str]] = {}
    files: dict[str, set[str]] = {}
    sources = [path for path in sorted(SOURCES.rglob("*")) if path.suffix in {".h", ".cpp", ".cu", ".cuh"}]
    headers = {path.relative_to(SOURCES).as_posix() for path in sources if path.suffix in {".h", ".cuh"}}
    for path in sources:
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
                if included in headers and node_of(name, headers) != included:
                    files.setdefault(node_of(name, headers), set()).add(included)
            if included in {"torch/torch.h", "torch/extension.h", "ATen/ATen.h"}:
                wrong.append(f"src/{name}: includes {included}; take ATen/core/Tensor.h and ATen/ops/<op>.h")
            if path.suffix in {".cu", ".cuh"} and target in {"torch", "ATen", "c10"}:
                wrong.append(f"src/{name}: includes {included}; a .cu file takes plain pointers")
        if "son::parse(" in text and name != "base/json.h":
            wrong.append(f"src/{name}: parses JSON by itself; base/json.h limits how deep it nests")
        if "getenv(" in text and folder != "cli" and not name.startswith("comm/launch"):
            wrong.append(f"src/{name}: reads the environment; only src/cli and src/comm/launch do")
    for what, edges in (("folders", folders), ("files", files)):
        for group in circles(edges):
            wrong.append(f"{what} in a circle: {', '.join(group)}")
    for line in wrong:
        print(f"layers: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
