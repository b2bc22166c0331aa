"""What a hostile or careless user gives the command line. Usage: hostile.py SOURCE_DIR ATTNSCOPE_PROGRAM

Outputs over inputs, options without their values, pipes, interrupts, traces made to be slow or to end in a figure that is none.
"""
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

source, program = pathlib.Path(sys.argv[1]), sys.argv[2]
naive = source / "tests/data/traces/article/naive.json.gz"
failures = []

# A run that takes this long does not end: each takes a second or two.
ENDLESS_S = 120


def run(*arguments, **options):
    options.setdefault("stdin", subprocess.DEVNULL)
    try:
        return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=ENDLESS_S, **options)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(arguments, -1, "", "it does not end")


def expect(what, done, code, *texts):
    output = done.stdout + done.stderr
    missing = [text for text in texts if text not in output]
    if done.returncode != code or missing:
        failures.append(f"{what}: exit {done.returncode}, expected {code}; missing {missing}\n{output[-600:]}")


def check(what, condition):
    if not condition:
        failures.append(what)


def event(name, ts, dur, cat="cpu_op", tid=1, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def launch(ts, correlation):
    return event("cudaLaunchKernel", ts, 1, "cuda_runtime", correlation=correlation)


def kernel(ts, dur, correlation, **args):
    described = {"device": 0, "stream": 7, "correlation": correlation, "grid": [1, 1, 1], "block": [128, 1, 1], "registers per thread": 32,
                 "shared memory": 0}
    return {**event("k", ts, dur, "kernel", tid=7, **(described | args)), "pid": 0}


def write_trace(path, events, **properties):
    device = {"id": 0, "name": "GPU", "computeMajor": 9, "computeMinor": 0, "numSms": 132, "regsPerMultiprocessor": 65536,
              "sharedMemPerMultiprocessor": 233472, **properties}
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [device], "traceEvents": events}))
    return path


def device(path, minor):
    """A node of our own, so that a fault cannot replace the machine's; its own name for whom that is out of reach; None where neither can be."""
    if os.geteuid() != 0:
        return pathlib.Path("/dev") / path.name
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
        path.open("wb").close()
    except OSError:
        return None
    return path


def outputs(work):
    trace, guess = work / "t.json.gz", work / "guess.toml"
    shutil.copy(naive, trace)
    guess.write_text('["attn_fwd"]\nkernels = 5\n')
    sheet = work / "sheet.toml"
    sheet.write_text("[naive]\nkernels = 5\n")
    cases = work / "cases.jsonl"
    cases.write_text(next(line for path in sorted((source / "tests/cases").glob("*.jsonl")) for line in path.open()))
    compare = ["compare", "--device", "cpu", "--shape", "1,1,16,8", "--rounds", "2", "--min-time", "0", "--backends", "naive"]
    inputs = {trace: [["table", trace], ["check", trace, guess], ["diff", trace, naive], ["diff", naive, trace],
                      ["occupancy", "--kernel-from", trace], ["explain", trace]],
              guess: [["check", trace, guess]], sheet: [[*compare, "--guess", sheet]], cases: [["verify", cases]]}
    for path, commands in inputs.items():
        before = path.read_bytes()
        for command in commands:
            expect(f"{command[0]} --json over its input {path.name}", run(*command, "--json", path), 2, "would overwrite its own input")
            check(f"{command[0]} leaves {path.name} as it was", path.read_bytes() == before)
    expect("one file under two names", run("explain", trace, "--json", work / "new", "--markdown", f"{work}/./new"), 2, "both go to")
    expect("the report and its log in one place", run(*compare, "--sweep", "seq=16,32", "--json", work / "s", "--resume", work / "s"), 2, "both go to")
    full, nothing = device(work / "full", 7), device(work / "null", 3)
    for command in (["table", trace], ["doctor"], ["rules"], compare):
        expect(f"{command[0]} into a folder", run(*command, "--json", work), 3, "is a directory")
        if full:
            expect(f"{command[0]} into a full device", run(*command, "--json", full), 3, f"cannot write {full}")
        if nothing:
            expect(f"{command[0]} into nothing", run(*command, "--json", nothing), 0)
    done = run("explain", trace, "--json", "/dev/stdout")
    check("/dev/stdout is -: the document alone", done.returncode == 0 and json.loads(done.stdout))
    check(f"nothing is left behind: {os.listdir(work)}", not [name for name in os.listdir(work) if "tmp" in name])


def options():
    expect("an option where a value belongs", run("explain", naive, "--json", "--html", "x"), 2, "--json needs a value; the option --html follows")
    expect("the same of a short name", run("record", "-o", "--ranges", "none", "--", "true"), 2, "-o needs a value")
    for command in (["explain", naive, "--finding", ""], ["table", naive, "--rows", ""], ["occupancy", "--arch", "sm_90", "--kernel-from", ""],
                    ["occupancy", "--arch", "sm_90", "--threads", "64", "--kernel", ""], ["compare", "--scale", ""], ["verify", "--backends", ""],
                    ["explain", ""]):
        expect(f"an empty value: {command}", run(*command), 2, "an empty value was given")
    expect("an option twice", run("occupancy", "--arch", "sm_80", "--arch=sm_90"), 2, "--arch was given 2 times")
    for command in (["explain", naive, "--finding"], ["table", naive, "--rows"]):
        expect("a number beyond 64 bits", run(*command, "9" * 30), 2, "9" * 30, "is not a whole number of 64 bits")
    expect("stdin twice", run("explain", "-", "-"), 2, "named twice")
    expect("stdin twice for diff", run("diff", "-", "-"), 2, "named twice")
    expect("a grid beyond 64 bits", run("occupancy", "--arch", "sm_90", "--threads", "64", "--grid", ",".join(["2147483647"] * 3)), 2, "too many blocks")


    small = ["compare", "--device", "cpu", "--shape", "1,1,16,8", "--rounds", "2", "--min-time", "0", "--backends", "naive"]
    for script in ("test", "tools/setup"):
        done = subprocess.run([source / script, "no-such-mode"], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        expect(f"./{script} with a mode there is none of", done, 2, "usage:")
    for what, command, text in (
            ("an option that --tune would ignore", ["compare", "--tune", "--dtype", "bf16"], "--tune does not go with --dtype"),
            ("an order that a sweep does not make", [*small, "--sweep", "seq=16", "--tune-output", "x"], "there is no --tune"),
            ("a page that has no place", ["explain", naive, "--finding", "1", "--json", "-"], "--finding prints to stdout"),
            ("a range that has no place", ["explain", naive, "--range", "attn_fwd", "--repair", "-"], "--range prints to stdout"),
            ("multiprocessors without a grid", ["occupancy", "--arch", "sm_90", "--threads", "64", "--sms", "5"], "only for a grid"),
            ("a width of a table that has none", ["table", naive, "--outermost", "--name-width", "20"], "--name-width goes with"),
            ("steps of ranges that are not recorded", ["record", "-o", "x", "--ranges", "none", "--steps", "s", "--", "true"], "--ranges none records none"),
            ("a log on stdout", [*small, "--sweep", "seq=16", "--resume", "-"], "in a file, not on stdout"),
            ("a slip", ["explain", naive, "--jsn", "x"], "there is no option --jsn; did you mean --json")):
        expect(what, run(*command), 2, text)


def guesses(work):
    deep = work / "deep.toml"
    deep.write_text("[" + ".".join("a" * 100_000) + "]\nkernels = 1\n")
    small = ["compare", "--device", "cpu", "--shape", "1,1,16,8", "--rounds", "2", "--min-time", "0", "--backends", "naive"]
    for command in (["check", naive], [*small, "--guess"]):
        expect(f"{command[0]}: a name nested 100,000 deep", run(*command, deep), 3, "nested more than 32 deep")
        expect(f"{command[0]}: a guess without end", run(*command, "/dev/zero"), 3, "too large for a guess")
    result = work / "c.json"
    expect("a result of compare", run(*small, "--json", result), 0)
    expect("kernels of what has none", run("diff", result, result, "--least-share", "2"), 2, "--least-share is for kernels of traces")


def ranks(work):
    for rank in (0, 1, 3):
        shutil.copy(naive, work / f"rank{rank}.json.gz")
    (work / "rank2.json").write_text("{}")
    done = run("explain", work)
    expect("three ranks and a file that is none", done, 3, "rank2.json is not a trace")
    check("the others are shown", all(f"rank{rank}.json.gz" in done.stdout for rank in (0, 1, 3)))
    done = run("explain", work, "--json", "-")
    check("and written", done.returncode == 3 and len(json.loads(done.stdout)["ranks"]) == 3)
    expect("no trace at all", run("explain", work / "rank2.json", work / "none"), 3, "rank2.json is not a trace", "cannot open")


def pipes():
    done = subprocess.run(["bash", "-c", f'"$0" diff <(cat "$1") <(cat "$1")', program, str(naive)], capture_output=True, text=True, timeout=60)
    expect("diff of two pipes", done, 0, "takes as long")


def bytes_in(folder):
    total = 0
    for path in folder.iterdir():
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # gone since it was listed
            pass
    return total


def interrupts(work):
    many = write_trace(work / "many.json", [event(f"op{i % 50}", 10 * i, 8) for i in range(200_000)])
    folder = work / "interrupted"
    folder.mkdir()
    seen = False
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        child = subprocess.Popen([program, "explain", str(many), "--repair", str(folder / "out.json.gz")], stdout=subprocess.DEVNULL)
        while child.poll() is None and bytes_in(folder) == 0:
            time.sleep(0.001)
        seen |= child.poll() is None
        child.send_signal(number)
        child.wait(60)
        left = [name for name in os.listdir(folder) if name != "out.json.gz"]
        check(f"{number.name} leaves {left}", not left)
        (folder / "out.json.gz").unlink(missing_ok=True)
    check("no run was interrupted while it wrote", seen)


def slow_traces(work):
    """Each takes a second when its cost grows with the events, minutes when with their square."""
    n = 100_000
    deep = [event(f"f{i}", i, 4 * n - 2 * i, cat="user_annotation") for i in range(n)]
    work_of = [x for i in range(n) for x in (launch(n + i, i + 1), kernel(n + i, 1, i + 1))]
    traces = {
        "one correlation id for all": [x for i in range(n) for x in (launch(2 * i, 5), kernel(2 * i + 1, 1, 5))],
        "all at one time": [event(f"o{i % 5}", 5, 0) for i in range(n)],
        "ranges that never end": deep + work_of,
        "a configuration a kernel": [x for i in range(n) for x in (launch(2 * i, i + 1), kernel(2 * i + 1, 1, i + 1, grid=[i + 1, 1, 1]))],
    }
    guess = work / "all.toml"
    guess.write_text('[".*"]\nmatch = "regex"\nkernels = 1\n')
    for what, events in traces.items():
        path = write_trace(work / "slow.json", events)
        for command in (["explain", path], ["table", path], ["check", path, guess], ["explain", path, "--write-guess", "-"], ["occupancy", "--kernel-from", path]):
            done = run(*command)
            check(f"{what}: {command[0]} {command[2:]} exits with {done.returncode}: {done.stderr}", done.returncode in (0, 1, 3))


def figures(work):
    """A device that no device is: nothing that is no number comes out."""
    events = [event("attn_fwd", 0, 100, "user_annotation"), launch(12, 1), kernel(40, 30, 1)]
    guess = work / "occupancy.toml"
    guess.write_text('["attn_fwd"]\noccupancy = ">= 1 %"\n')
    for value in (0, 1, -1, 2**31, 2**63 - 1, 1e300):
        path = write_trace(work / "device.json", events, maxThreadsPerMultiprocessor=value, maxThreadsPerBlock=value, warpSize=value, numSms=value)
        for command in (["explain", path], ["check", path, guess], ["explain", path, "--write-guess", "-"], ["occupancy", "--kernel-from", path]):
            done = run(*command)
            words = done.stdout.replace("-", " ").split()
            check(f"maxThreadsPerMultiprocessor {value}: {command[0]} says {done.stdout}", not {"nan", "inf"} & set(words) and done.returncode in (0, 1))


with tempfile.TemporaryDirectory() as scratch:
    for number, part in enumerate((outputs, options, guesses, ranks, pipes, interrupts, slow_traces, figures)):
        folder = pathlib.Path(scratch) / str(number)
        folder.mkdir()
        part(folder) if part.__code__.co_argcount else part()

print("\n".join(failures) or "hostile: all refused or borne")
sys.exit(1 if failures else 0)
