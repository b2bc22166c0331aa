"""`attnscope view`: serves the page under its token only, and ends when the tab is gone. Usage: view.py ATTNSCOPE_PROGRAM"""
import pathlib
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

program = sys.argv[1]
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)


def status(url):
    try:
        return urllib.request.urlopen(url, timeout=5).status
    except urllib.error.HTTPError as error:
        return error.code


with tempfile.TemporaryDirectory() as scratch:
    page = pathlib.Path(scratch) / "page.html"
    page.write_text("<!doctype html><title>attnscope</title>the report", encoding="utf-8")
    server = subprocess.Popen([program, "view", str(page)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    url = server.stdout.readline().strip()
    try:
        check(url.startswith("http://127.0.0.1:"), f"prints no loopback address: {url!r}")
        root = url[: url.index("/", 8)]
        check(b"the report" in urllib.request.urlopen(url + "page", timeout=5).read(), "does not serve the page")
        check(b"iframe" in urllib.request.urlopen(url, timeout=5).read(), "does not serve the frame")
        check(status(root + "/") == 404, "answers without the token")
        check(status(root + "/page") == 404, "answers the page without the token")
        check(status(url + "../../etc/passwd") == 404, "serves another file")
        tab = urllib.request.urlopen(url + "alive", timeout=5)
        check(tab.read(1) == b".", "the tab's connection carries nothing")
        check(server.poll() is None, "ended while the tab was open")
        tab.close()
        check(server.wait(timeout=15) == 0, "does not end with code 0")
    finally:
        server.kill()
    other = pathlib.Path(scratch) / "other.html"
    other.write_text("<p>hello", encoding="utf-8")
    refused = subprocess.run([program, "view", str(other)], capture_output=True, text=True, timeout=20)
    check(refused.returncode == 3 and "not a page of attnscope" in refused.stderr, f"takes any file: {refused}")
    missing = subprocess.run([program, "view", str(page) + "x"], capture_output=True, text=True, timeout=20)
    check(missing.returncode == 3 and "cannot open" in missing.stderr, f"missing file: {missing}")

print("\n".join(failures) or "view: held")
sys.exit(1 if failures else 0)
