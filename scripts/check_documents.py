"""Checks the command lines in README.md and docs/: check_documents.py --veil PROGRAM [--work DIR] [FILE ...]

Every line of a code block that starts the program is checked: its command and its options must exist. Blocks that are
marked ```sh are run as well, line by line and file by file, each file in an empty folder with a link to examples/; a line
must end with exit code 0. ```sh no-run is for what needs a GPU, a download or another machine."""

import argparse
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def blocks(text):
    """(kind, first line number, lines) of each code block: fenced ones with their info string, indented ones with ''."""
    lines, at = text.split("\n"), 0
    while at < len(lines):
        fence = re.match(r"```(.*)$", lines[at])
        begin = at + 1
        if fence:
            at += 1
            while at < len(lines) and not lines[at].startswith("```"):
                at += 1
            yield fence.group(1).strip(), begin + 1, lines[begin:at]
        elif lines[at].startswith("    ") and (at == 0 or not lines[at - 1].strip()):
            while at < len(lines) and lines[at].startswith("    "):
                at += 1
            yield "", begin, [line[4:] for line in lines[begin - 1 : at]]
            continue
        at += 1


def commands(lines, first):
    """(line number, command) with continued lines joined and the prompt of console blocks taken off."""
    pending, number = "", 0
    for offset, line in enumerate(lines):
        if not pending:
            number = first + offset
        if line.endswith("\\"):
            pending += line[:-1]
            continue
        yield number, (pending + line).removeprefix("$ ")
        pending = ""


class Checker:
    def __init__(self, veil):
        self.veil, self.help, self.failures, self.checked, self.ran = veil, {}, [], 0, 0

    def help_of(self, command):
        if command not in self.help:
            said = subprocess.run([self.veil, *command.split(), "--help", "all"], capture_output=True, text=True)
            if said.returncode != 0:
                said = subprocess.run([self.veil, *command.split(), "--help"], capture_output=True, text=True)
            self.help[command] = said.stdout if said.returncode == 0 else None
        return self.help[command]

    def check(self, place, line):
        """Commands and options of one line, where it starts the program."""
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            return
        # Behind a launcher, or with variables before it.
        if "veil" not in words or not (words[0] == "veil" or words[0] in ("mpirun", "torchrun", "srun") or "=" in words[0]):
            return
        words = words[words.index("veil") + 1 :]
        if not words or words[0].startswith("-") or words[0].isupper():
            return
        self.checked += 1
        command = words[0]
        if self.help_of(command) is None:
            self.failures.append(f"{place}: veil {command}: no such command")
            return
        known = self.help_of(command)
        if len(words) > 1 and re.fullmatch(r"[a-z0-9-]+", words[1]) and command in ("suite", "privacy", "audit") and self.help_of(f"{command} {words[1]}"):
            known += self.help_of(f"{command} {words[1]}")
        if "--" in words:  # what follows are options of a training run
            known += self.help_of("train")
        spelled = known.replace("_", "-")
        for word in words[1:]:
            option = re.match(r"--[A-Za-z][A-Za-z0-9_-]*", word)
            if option and not re.search(re.escape(option.group(0).replace("_", "-")) + r"(?![A-Za-z0-9-])", spelled):
                self.failures.append(f"{place}: veil {command} has no option {option.group(0)}")

    def run(self, place, line, folder):
        environment = dict(os.environ, PATH=f"{folder}/bin:{os.environ['PATH']}")
        done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, env=environment)
        self.ran += 1
        if done.returncode != 0:
            self.failures.append(f"{place}: exit code {done.returncode}: {line}\n{done.stdout[-600:]}{done.stderr[-600:]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--veil", required=True)
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    veil = str(pathlib.Path(arguments.veil).resolve())
    checker = Checker(veil)
    files = [pathlib.Path(f) for f in arguments.files] or [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for file in files:
        if "benchmarks" in file.parts:
            continue  # what was run then, with the options of then
        folder = pathlib.Path(tempfile.mkdtemp(prefix="veil_documents_"))
        (folder / "bin").mkdir()
        (folder / "bin" / "veil").symlink_to(veil)
        (folder / "examples").symlink_to(ROOT / "examples")
        for kind, first, lines in blocks(file.read_text()):
            for number, line in commands(lines, first):
                place = f"{file.name}:{number}"
                checker.check(place, line)
                if kind == "sh" and line.strip() and not line.startswith("#"):
                    checker.run(place, line, folder)
        shutil.rmtree(folder)
    for failure in checker.failures:
        print(failure, file=sys.stderr)
    print(f"documents: {checker.checked} command lines checked, {checker.ran} run, {len(checker.failures)} wrong")
    return 1 if checker.failures or not checker.checked or not checker.ran else 0


if __name__ == "__main__":
    sys.exit(main())
