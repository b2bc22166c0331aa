"""Runs every command that README.md shows in a ```console block: lines that start with "$ ./run" or "$ attnscope".

A line may end in "# exit N". Usage: readme.py SOURCE_DIR ATTNSCOPE_PROGRAM
Commands run in a scratch folder that holds the files README names (examples/ and tests/data are linked in).
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

source, program = pathlib.Path(sys.argv[1]), sys.argv[2]
blocks = re.findall(r"```console\n(.*?)```", (source / "README.md").read_text(encoding="utf-8"), re.S)
commands = [line[2:] for block in blocks for line in block.splitlines() if re.match(r"\$ (\./run|attnscope)\b", line)]
if len(commands) < 5:
    sys.exit(f"README shows only {len(commands)} commands")

failures = 0
with tempfile.TemporaryDirectory() as scratch:
    for folder in ("examples", "tests"):
        os.symlink(source / folder, pathlib.Path(scratch) / folder)
    for command in commands:
        text, _, comment = command.partition("  #")
        expected = re.search(r"exit (\d+)", comment)
        expected = int(expected[1]) if expected else 0
        arguments = shlex.split(text)[1:] or ["compare"]
        done = subprocess.run([program, *arguments], cwd=scratch, capture_output=True, text=True, timeout=300,
                              stdin=subprocess.DEVNULL)
        good = done.returncode == expected and done.stdout.strip() != ""
        failures += not good
        print(("held  " if good else "BROKEN") + f" exit {done.returncode}: {command}")
        if not good:
            print(done.stdout[-2000:], done.stderr[-2000:])
sys.exit(1 if failures else 0)
