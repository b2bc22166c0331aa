"""Faults that were found by trying the program, each kept from coming back. Usage: faults.py SOURCE_DIR ATTNSCOPE_PROGRAM

Paths of outputs, sizes no device could launch, traces that were cut, options that would change or repeat what was asked.
"""
import gzip
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import threading
import zlib

source, program = pathlib.Path(sys.argv[1]), sys.argv[2]
trace = source / "tests/data/traces/article/math.json.gz"
naive = source / "tests/data/traces/article/naive.json.gz"
failures = []


def run(*arguments):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


def expect(what, done, code, *texts):
    output = done.stdout + done.stderr
    missing = [text for text in texts if text not in output]
    if done.returncode != code or missing:
        failures.append(f"{what}: exit {done.returncode}, expected {code}; missing {missing}\n{output[-800:]}")


def check(what, condition):
    if not condition:
        failures.append(what)


with tempfile.TemporaryDirectory() as scratch:
    work = pathlib.Path(scratch)
    plain = gzip.decompress(trace.read_bytes())

    # Outputs that are no regular files are written, not replaced; links are followed; the mode stays.
    fifo = work / "fifo"
    os.mkfifo(fifo)
    received = []
    reader = threading.Thread(target=lambda: received.append(fifo.read_bytes()), daemon=True)
    reader.start()
    expect("a pipe as output", run("explain", trace, "--json", fifo), 0)
    reader.join(20)
    check("the pipe's reader got the document", received and json.loads(received[0])["schema"] == "attnscope.explain/1")
    check("the pipe is still a pipe", stat.S_ISFIFO(fifo.stat().st_mode))
    target, link = work / "target.json", work / "link.json"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    expect("a link as output", run("explain", trace, "--json", link), 0)
    check("the link's target was written", link.is_symlink() and target.read_text().startswith("{"))
    check("the mode stays", stat.S_IMODE(target.stat().st_mode) == 0o600)
    own = work / "own.json.gz"
    own.write_bytes(trace.read_bytes())
    for option in ("--json", "--repair", "--html"):
        expect(f"{option} over its own input", run("explain", own, option, own), 2, "overwrite")
    report = work / "closed.json"
    done = subprocess.run(["sh", "-c", '"$1" explain "$2" --json "$3" >&-', "sh", program, str(trace), str(report)], capture_output=True, text=True, timeout=60)
    check(f"a closed stdout is an error, and no text goes into the file: {done.stderr}", done.returncode == 3 and json.loads(report.read_text()))
    expect("a device without end", run("explain", "/dev/zero"), 3, "nothing but zeros")
    check("the input is untouched", own.read_bytes() == trace.read_bytes())
    expect("two outputs on stdout", run("explain", trace, "--json", "-", "--markdown", "-"), 2, "both go to -")

    # Sizes that no device could launch.
    expect("2^40 threads", run("occupancy", "--arch", "sm_90", "--threads", "1099511627776", "--registers", "32"), 0, "0")
    huge = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU", "computeMajor": 9, "computeMinor": 0, "numSms": 132}],
            "traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 5, "args": {
                "device": 0, "stream": 7, "correlation": 1, "registers per thread": 32, "shared memory": 0,
                "grid": [2147483647, 2147483647, 2147483647], "block": [1048576, 1048576, 1]}}]}
    (work / "huge.json").write_text(json.dumps(huge))
    expect("a block of 2^40 threads in a trace", run("explain", work / "huge.json"), 0)

    # A file that was cut proves nothing by what it lacks.
    cut = work / "cut.json"
    cut.write_bytes(plain[:100000])
    guess = work / "guess.toml"
    guess.write_text('["attn_fwd"]\nkernels = "<= 20"\ncopies = 0\n')
    expect("check of the whole trace", run("check", trace, guess), 0)
    expect("check of a cut trace", run("check", cut, guess), 1, "the file is cut")
    expect("diff with a cut trace", run("diff", trace, cut), 3, "was cut")
    early = work / "early.json"
    early.write_bytes(plain[:40000])
    done = run("explain", early)
    expect("explain of a trace cut before its device events", done, 0, "cut before any event of the device")
    check("no verdict about a CPU", "ran on the CPU" not in done.stdout)

    # gzip cut early: what the decoder still holds is handed over.
    short = work / "short.json.gz"
    short.write_bytes(trace.read_bytes()[:3000])
    unpacked = work / "short.json"
    unpacked.write_bytes(zlib.decompressobj(31).decompress(short.read_bytes()))
    events = [json.loads(run("explain", path, "--json", "-").stdout)["trace"]["events"] for path in (short, unpacked)]
    check(f"a cut gzip gives what zlib can unpack: {events}", events[0] == events[1] > 50)

    # Gates that must not be talked out of their answer.
    expect("a threshold that is no number", run("diff", naive, naive, "--threshold", "nan"), 2)
    empty = work / "empty.toml"
    empty.write_text('["attn_fwd"]\n# nothing\n')
    expect("a guess that states nothing", run("check", naive, empty), 3, "states nothing")

    # compare: what was asked, once, and no more work than there is.
    small = ["compare", "--device", "cpu", "--shape", "1,1,64,64", "--rounds", "2"]
    expect("a variant named twice", (twice := run(*small, "--backends", "flash,flash", "--json", "-")), 0)
    check("it runs once", len(json.loads(twice.stdout)["variants"]) == 1)
    work_of = {}
    for length in (0, 16, 64):
        done = run(*small, "--backends", "flash", "--lengths", length, "--json", "-")
        expect(f"lengths {length}", done, 0)
        work_of[length] = json.loads(done.stdout)["variants"][0]["flops"]
    check(f"work follows the lengths: {work_of}", not work_of[0] and work_of[64] == 4 * work_of[16] > 0)
    expect("a scale beyond f32", run(*small, "--scale", "1e300"), 2, "does not fit f32")
    expect("a softcap that is 0 in f32", run(*small, "--softcap", "1e-300"), 2, "does not fit f32")
    for guess, reason in ((work, "is a folder"), (os.devnull, "states nothing")):
        expect(f"the guess {guess}", run(*small, "--backends", "flash", "--guess", guess), 3, reason)
    for cases, reason in ((work, "cannot read"), (os.devnull, "holds no case")):
        expect(f"the cases {cases}", run("verify", cases), 3, reason)
    sweep = ["compare", "--device", "cpu", "--rounds", "2", "--backends", "flash", "--sweep"]
    expect("heads that break the groups", run(*sweep, "heads=2,3", "--shape", "1,4,2,16,16,8,8"), 2, "groups of 2")
    expect("one length for two", run(*sweep, "seq=16,32", "--shape", "1,2,2,16,24,8,8"), 2, "L is 16 and S is 24")
    log = work / "sweep.jsonl"
    expect("a sweep", run(*sweep, "seq=16,32", "--shape", "1,1,64,8", "--resume", log, "--json", work / "a.json"), 0)
    check("its request is what was asked", "1,1,64,8" in json.loads((work / "a.json").read_text())["request"])
    expect("its log under other conditions", run(*sweep, "seq=16,32", "--shape", "1,1,64,8", "--resume", log, "--cold"), 3, "another sweep")

for command in ("view", "verify", "compare", "explain"):
    check(f"{command} names itself once", "attnscope attnscope" not in run(command, "--help").stdout)

print("\n".join(failures) or "faults: none came back")
sys.exit(1 if failures else 0)
