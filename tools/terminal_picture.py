"""Draws what a command really prints on a terminal as an SVG picture.

Usage: terminal_picture.py OUT.svg [--columns N] [--shown "$ command as a person types it"] -- PROGRAM [ARGS…]
The program runs on a pseudo-terminal, so it colours and wraps its output as it would for a person. Only SGR
colours are drawn; progress lines that were drawn over are left out.
"""
import fcntl
import html
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import unicodedata

CHAR_WIDTH, LINE_HEIGHT, MARGIN, FONT_SIZE = 8.4, 19, 18, 14
COLOURS = {"31": "#f47067", "32": "#8ddb8c", "33": "#f69d50", "36": "#76e3ea"}
STYLES = {"1": 'font-weight="bold" fill="#f0f6fc"', "2": 'fill="#8b949e"'}


def run(command, columns):
    """Everything the command writes to its terminal, as text."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    environment.pop("NO_COLOR", None)
    child = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=subprocess.DEVNULL, env=environment)
    os.close(slave)
    parts = []
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the terminal closes with its last user
            break
        if not part:
            break
        parts.append(part)
    child.wait()
    return b"".join(parts).decode("utf-8", "replace").replace("\r\n", "\n")


def columns_of(text):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def spans(line, style):
    """(style, text) pieces of one line; the style that is left open at its end."""
    pieces = []
    for piece in re.split(r"(\x1b\[[0-9;]*[A-Za-z])", line):
        sgr = re.fullmatch(r"\x1b\[([0-9;]*)m", piece)
        if sgr:
            style = "" if sgr[1] in ("", "0") else sgr[1]
        elif piece and not piece.startswith("\x1b"):
            pieces.append((style, piece))
    return pieces, style


def draw(lines, columns):
    width = round(columns * CHAR_WIDTH + 2 * MARGIN)
    height = round(len(lines) * LINE_HEIGHT + 2 * MARGIN + 22)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">',
        f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>',
        *(f'<circle cx="{MARGIN + 4 + 18 * i}" cy="16" r="5" fill="{c}"/>' for i, c in enumerate(("#f47067", "#f69d50", "#8ddb8c"))),
        f'<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="{FONT_SIZE}" fill="#c9d1d9">',
    ]
    style = ""
    for row, line in enumerate(lines):
        pieces, style = spans(line, style)
        column = 0
        y = MARGIN + 22 + row * LINE_HEIGHT + FONT_SIZE
        # Viewers fold runs of spaces, so words that several spaces set apart are placed one by one.
        for piece_style, text in ((p, word) for p, whole in pieces for word in re.split(r"( {2,}|^ +)", whole)):
            wide = columns_of(text)
            if text.strip():
                paint = STYLES.get(piece_style) or (f'fill="{COLOURS[piece_style]}"' if piece_style in COLOURS else "")
                # textLength pins every piece to the grid, whatever font the viewer has.
                out.append(f'<text x="{MARGIN + column * CHAR_WIDTH:.1f}" y="{y}" textLength="{wide * CHAR_WIDTH:.1f}" lengthAdjust="spacingAndGlyphs" {paint}>{html.escape(text)}</text>')
            column += wide
    return "\n".join([*out, "</g>", "</svg>", ""])


def main():
    arguments = sys.argv[1:]
    if "--" not in arguments or arguments[0] == "--":
        sys.exit(__doc__)
    split = arguments.index("--")
    options, command = arguments[:split], arguments[split + 1 :]
    target, rest = options[0], dict(zip(options[1::2], options[2::2]))
    columns = int(rest.get("--columns", "100"))
    text = run(command, columns)
    shown = rest.get("--shown", "$ " + " ".join(command))
    lines = [f"\x1b[1m{shown}\x1b[0m", *text.rstrip("\n").split("\n")]
    with open(target, "w", encoding="utf-8") as file:
        file.write(draw(lines, columns))


if __name__ == "__main__":
    main()
