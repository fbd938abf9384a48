#!/usr/bin/env python3
"""Writes a folder of fuzzer inputs as a corpus file: one input on a line, in hexadecimal.

    scripts/fuzz_corpus.py fuzz/corpus/open.hex FOLDER
    scripts/fuzz_corpus.py fuzz/corpus/open.hex --add FILE 'what it found'

Lines with a comment are regressions and stay. The inputs of the folder replace the other lines, the
smallest first, as many as fit a corpus of MAX_BYTES.
"""

import pathlib
import sys

MAX_BYTES = 48 << 10


def main(arguments):
    if len(arguments) not in (2, 4):
        sys.exit(__doc__)
    path = pathlib.Path(arguments[0])
    lines = path.read_text().splitlines() if path.exists() else []
    if arguments[1] == "--add":
        lines.append(f"{pathlib.Path(arguments[2]).read_bytes().hex()}  # {arguments[3]}")
    else:
        lines = [line for line in lines if "#" in line]
        room = MAX_BYTES - sum(map(len, lines))
        known = {line.split("#")[0].strip() for line in lines}
        inputs = {file.read_bytes().hex() for file in pathlib.Path(arguments[1]).iterdir()}
        for text in sorted(inputs - known, key=lambda t: (len(t), t)):
            room -= len(text) + 1
            if not text or room < 0:
                continue
            lines.append(text)
    path.write_text("\n".join(lines) + "\n")


main(sys.argv[1:])
