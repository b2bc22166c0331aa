"""The plain kernels' machine code, image by image, against what was last agreed on: a feature that is off must not
change a single instruction of the images that do not have it.

  plain_images.py CUBIN_FOLDER RECORD COMPILER_VERSION [--bless]

RECORD holds one line an image (its name, the SHA-256 of its code section) under the compiler that made them; another
compiler gives other code, so that the check is then skipped (exit 77). A change that means to alter the plain kernel
runs with --bless and says so in its commit.
"""

import hashlib
import pathlib
import struct
import sys


def code_of(path):
    """Bytes of the ELF sections that hold instructions."""
    data = path.read_bytes()
    table, = struct.unpack_from("<Q", data, 40)
    entry_size, count, names_index = struct.unpack_from("<HHH", data, 58)
    sections = [struct.unpack_from("<IIQQQQ", data, table + i * entry_size) for i in range(count)]
    names_at = sections[names_index][4]
    code = b""
    for name, _, _, _, offset, size in sections:
        start = names_at + name
        if data[start:data.index(b"\0", start)].startswith(b".text."):
            code += data[offset:offset + size]
    if not code:
        sys.exit(f"{path}: no code section")
    return code


def main():
    folder, record, compiler = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    found = {p.stem: hashlib.sha256(code_of(p)).hexdigest()
             for p in sorted(folder.glob("flash_sm90_e*.cubin"))}
    if not found:
        print(f"no images in {folder}")
        return 77
    if "--bless" in sys.argv:
        record.write_text(f"nvcc {compiler}\n" + "".join(f"{name} {digest}\n" for name, digest in found.items()))
        return 0
    first, *lines = record.read_text().splitlines()
    if first != f"nvcc {compiler}":
        print(f"recorded with {first}, built with nvcc {compiler}: nothing to compare")
        return 77
    agreed = dict(line.split() for line in lines)
    changed = sorted(name for name in agreed.keys() | found.keys() if agreed.get(name) != found.get(name))
    for name in changed:
        print(f"{name}: {'new' if name not in agreed else 'gone' if name not in found else 'other instructions'}")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
