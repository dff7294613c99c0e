# Copyright (c) 2026 The hpcai.gpu_cluster developers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of nccl-tests 2.19.6: src/common.cu, ``main``."""

from __future__ import annotations

import dataclasses
import getopt
import re
import sys

#: letter -> long name. The options that have no letter here do not exist.
NAMES = {
    "t": "nthreads",
    "g": "ngpus",
    "b": "minbytes",
    "e": "maxbytes",
    "i": "stepbytes",
    "f": "stepfactor",
    "n": "iters",
    "m": "agg_iters",
    "w": "warmup_iters",
    "N": "run_cycles",
    "p": "parallel_init",
    "c": "check",
    "o": "op",
    "d": "datatype",
    "r": "root",
    "z": "blocking",
    "y": "stream_null",
    "T": "timeout",
    "G": "cudagraph",
    "C": "report_cputime",
    "S": "report_timestamps",
    "J": "output_file",
    "a": "average",
    "R": "local_register",
    "x": "cta_policy",
    "D": "device_implementation",
    "V": "device_cta_count",
    "M": "memory",
    "u": "unalign",
    "I": "per_iter_timing",
    "K": "per_iter_skip",
}
SIZES = "bei"
#: Accepted, and without a trace in the output of the real program. Of the others none is simulated that is not a field below.
SILENT = "yraRxV"
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclasses.dataclass
class Options:
    """With the defaults of the real program. Sizes are bytes."""

    nthreads: int = 1
    ngpus: int = 1
    minbytes: int = 32 << 20
    maxbytes: int = 32 << 20
    stepbytes: int = 1 << 20
    stepfactor: int = 1
    iters: int = 20
    agg_iters: int = 1
    warmup_iters: int = 1
    run_cycles: int = 1
    check: int = 1
    timeout: int = 0
    report_timestamps: int = 0
    output_file: str = ""

    @property
    def gpus(self) -> int:
        """Of one process."""
        return self.nthreads * self.ngpus


def parse(program: str, arguments: list[str]) -> Options:
    """SystemExit as the real program ends: with its usage and 0 at an unknown option, with 255 at a size that is none."""
    letters = "h" + "".join(f"{letter}:" for letter in NAMES)
    try:
        pairs, _rest = getopt.gnu_getopt(arguments, letters, ["help", *(f"{name}=" for name in NAMES.values())])
    except getopt.GetoptError as error:
        print(f"{program}: {complaint(error)}", file=sys.stderr)
        print("invalid option '?'")
        usage(program)
    letter_of = {f"--{name}": letter for letter, name in NAMES.items()}
    options = Options()
    for option, text in pairs:
        if option in ("-h", "--help"):
            usage(program)
        letter = letter_of.get(option, option[1:])
        name = NAMES[letter]
        if letter in SIZES:
            setattr(options, name, size(name, text))
        elif hasattr(options, name):
            setattr(options, name, text if letter == "J" else number(text))
        elif letter not in SILENT:
            sys.exit(f"{program}: the lab's stand-in does not simulate -{letter} ({name}).")
    if options.minbytes > options.maxbytes:
        refuse(f"invalid sizes for 'minbytes' and 'maxbytes': {options.minbytes} > {options.maxbytes}")
    return options


def complaint(error: getopt.GetoptError) -> str:
    """In the words of the C library."""
    long = len(error.opt) > 1
    if "not recognized" in error.msg:
        return f"unrecognized option '--{error.opt}'" if long else f"invalid option -- '{error.opt}'"
    return f"option '--{error.opt}' requires an argument" if long else f"option requires an argument -- '{error.opt}'"


def usage(program: str) -> None:
    print(f"USAGE: {program} \n\t" + " \n\t".join(f"[-{letter},--{name} <{name}>]" for letter, name in NAMES.items()))
    print("\t[-h,--help]")
    sys.exit(0)


def refuse(text: str) -> None:
    print(text, file=sys.stderr)
    sys.exit(255)


def number(text: str) -> int:
    """strtol: what is no number is 0, and what follows one is left."""
    found = re.match(r"\s*([-+]?\d+)", text)
    return int(found[1]) if found else 0


def size(name: str, text: str) -> int:
    """``8``, ``8K``, ``0.5g``: binary units."""
    found = re.match(r"\s*(\d*\.?\d+)\s*([kKmMgG]?)", text)
    if not found or (not found[2] and text[found.end() :].strip()):
        refuse(f"invalid size specified for '{name}'")
        raise AssertionError
    return int(float(found[1]) * UNITS[found[2].lower()])
