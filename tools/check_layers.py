"""Link order is law: a folder under src includes only itself and folders above it. Exit 1 with every breach."""
import pathlib
import re
import sys

ALLOWED = {
    "base": [],
    "trace": ["base"],
    "formats": ["base", "trace"],
    "analysis": ["base", "trace"],
    "report": ["base", "trace", "analysis"],
    "tensor": ["base"],
    "cuda": ["base", "tensor"],
    "attention": ["base", "tensor"],
    "profiler": ["base", "trace", "formats", "tensor", "cuda"],
    "backends": ["base", "tensor", "attention", "cuda"],
    "compare": ["base", "trace", "formats", "analysis", "report", "tensor", "attention", "profiler", "backends", "cuda"],
    "verify": ["base", "tensor", "attention", "compare", "cuda"],
    "capi": ["base", "tensor", "attention", "profiler", "trace", "formats", "cuda"],
    "cli": None,  # sees everything
}

root = pathlib.Path(__file__).resolve().parent.parent / "src"
breaches = []
for path in sorted(root.rglob("*")):
    if path.suffix not in {".h", ".cpp", ".cu", ".cuh"}:
        continue
    folder = path.relative_to(root).parts[0]
    if folder not in ALLOWED:
        breaches.append(f"src/{folder} is not in the list of layers (tools/check_layers.py)")
        continue
    allowed = ALLOWED[folder]
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+"([a-z_]+)/', line)
        if not match or match[1] in {"attnscope", folder}:
            continue
        if allowed is not None and match[1] in ALLOWED and match[1] not in allowed:
            breaches.append(f"{path.relative_to(root.parent)}:{number}: {folder} may not include {match[1]}")
print("\n".join(sorted(set(breaches))) or "layers: fine")
sys.exit(1 if breaches else 0)
