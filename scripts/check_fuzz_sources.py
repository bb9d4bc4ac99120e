"""Checks that the fuzz targets' list of sources (tests/fuzz/CMakeLists.txt) is whole: for each header that one of its
sources includes, the file that implements it is in the list too. A link that misses one fails only at the end of a long
build by clang, with another compiler than the one a change was made with.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)\.h"', re.MULTILINE)
LISTED = re.compile(r"foreach\(source\n(.*?)\)", re.DOTALL)
WHOLE_FOLDERS = re.compile(r"\$\{CMAKE_SOURCE_DIR\}/src/(\w+)/\*\.cpp")
# Included for a type alone: no function of it is called.
TYPES_ALONE = {("models/dit_config", "models/dit")}


def main() -> int:
    text = (ROOT / "tests/fuzz/CMakeLists.txt").read_text()
    listed = {name for names in LISTED.findall(text) for name in names.split()}
    for folder in WHOLE_FOLDERS.findall(text):
        listed |= {f"{folder}/{path.stem}" for path in (ROOT / "src" / folder).glob("*.cpp")}
    wrong: list[str] = []
    for name in sorted(listed):
        source = ROOT / "src" / f"{name}.cpp"
        if not source.exists():
            wrong.append(f"src/{name}.cpp is in the list and does not exist")
            continue
        for included in INCLUDE.findall(source.read_text()):
            if included in listed or (name, included) in TYPES_ALONE or not (ROOT / "src" / f"{included}.cpp").exists():
                continue
            wrong.append(f"src/{included}.cpp is not in the list, but src/{name}.cpp includes its header")
    for line in wrong:
        print(f"fuzz sources: {line} (tests/fuzz/CMakeLists.txt)", file=sys.stderr)
    return 1 if wrong or not listed else 0


if __name__ == "__main__":
    sys.exit(main())
