"""HACKING.md maps every folder: each top-level folder and each folder under src is named there. Exit 1 with what is missing."""
import pathlib
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parent.parent
files = subprocess.run(["git", "ls-files"], cwd=root, check=True, capture_output=True, text=True).stdout.split("\n")
folders = set()
for name in files:
    parts = pathlib.PurePosixPath(name).parts
    if len(parts) > 1 and not parts[0].startswith("."):
        folders.add(f"{parts[0]}/")
    if len(parts) > 2 and parts[0] == "src":
        folders.add(f"src/{parts[1]}/")
folders.discard("src/")
folders.discard("include/")
text = (root / "HACKING.md").read_text(encoding="utf-8")
missing = sorted(folder for folder in folders if f"`{folder}`" not in text)
print("HACKING.md does not map: " + ", ".join(missing) if missing else "HACKING.md: every folder mapped")
sys.exit(1 if missing else 0)
