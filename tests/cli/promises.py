"""What messages, help and docs promise exists. Usage: promises.py SOURCE_DIR ATTNSCOPE_PROGRAM

Every option that a message or a page names is one of the command line; every command's help shows its example once; every JSON
schema that the program writes has its page under docs/schemas.
"""
import pathlib
import re
import subprocess
import sys

source, program = pathlib.Path(sys.argv[1]), sys.argv[2]
failures = []

# Options of other programs that our texts name, each with whose it is.
FOREIGN = {
    "--preset": "ctest", "--test-dir": "ctest", "--list-presets": "cmake", "--ptxas-options": "nvcc", "--gpu-architecture": "nvcc",
    "--no-deps": "pip", "--build": "cmake", "--version": "attnscope itself",
}
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]")


def run(*arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


def options_of(text):
    return set(OPTION.findall(text))


general = run("--help").stdout
listed = re.findall(r"^  ([a-z]+)  ", general, re.M)
helps = {command: run(command, "--help").stdout for command in listed}
if len(helps) < 8:
    failures.append(f"--help lists only {listed}")

for command, text in helps.items():
    examples = re.findall(r"^ *examples?: *(.*)$", text, re.M | re.I)
    if len(examples) != 1 or not examples[0].startswith(f"attnscope {command}"):
        failures.append(f"{command} --help: {len(examples)} examples, expected one: {examples}")
    missing = options_of(examples[0] if examples else "") - options_of(text)
    if missing:
        failures.append(f"{command} --help: the example names {missing}")

# Commands that this build lacks (a build without CUDA, or without the attention half) are judged by a build that has them.
every_command = {path.stem for path in (source / "src/cli").glob("*.cpp") if f"{path.stem}_command{{" in path.read_text()
                 or f"{path.stem}_command {{" in path.read_text()}
absent = every_command - set(helps) - {"no_record"}
known = set().union(*(options_of(text) for text in helps.values()))
declared = known | {option for command in absent for option in options_of((source / f"src/cli/{command}.cpp").read_text())}
if "compare" in absent:
    declared |= options_of((source / "src/cli/compare_options.cpp").read_text())


def check(where, text):
    # "attnscope explain … --finding": the option is that command's.
    for command, rest in re.findall(r"attnscope (\w+)\b([^`\n\"]*)", text):
        rest = re.split(r"&&|\||  ", rest)[0]
        if command in helps and not (command == "record" and " -- " in rest):
            for option in options_of(rest) - options_of(helps[command]):
                failures.append(f"{where}: attnscope {command} has no {option}")
    for option in options_of(text) - declared - set(FOREIGN):
        failures.append(f"{where}: there is no option {option}")


literal = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
for path in sorted((source / "src").rglob("*")):
    if path.suffix in (".cpp", ".h", ".cu"):
        # Literals that follow each other are one text.
        code = re.sub(r"//[^\n\"]*$", "", path.read_text(encoding="utf-8"), flags=re.M)
        for text in literal.findall(re.sub(r'"\s*\n\s*"', "", code)):
            check(path.relative_to(source), text)
for path in [source / "README.md", *sorted((source / "docs").rglob("*.md")), source / "tests/cases/README.md"]:
    text = path.read_text(encoding="utf-8")
    check(path.relative_to(source), "\n".join(part for part in re.findall(r"`([^`]*)`", text.replace("```", "`")) if "attnscope" in part or part.startswith("--")))

TEXT = {"order"}  # lines of text, no JSON
schemas = {}
for path in (source / "src").rglob("*.cpp"):
    for name in re.findall(r"attnscope\.([a-z-]+)/\d", path.read_text(encoding="utf-8")):
        if name not in TEXT:
            schemas.setdefault(name, path.relative_to(source))
if len(schemas) < 10:
    failures.append(f"only {sorted(schemas)} are written")
for name, path in schemas.items():
    page = source / f"docs/schemas/{name}.schema.json"
    if not page.exists() or f"attnscope.{name}/1" not in page.read_text(encoding="utf-8"):
        failures.append(f"{path} writes attnscope.{name}, which docs/schemas does not describe")

print("\n".join(dict.fromkeys(failures)) or f"promises: {len(helps)} commands, {len(known)} options, {len(schemas)} schemas")
sys.exit(1 if failures else 0)
