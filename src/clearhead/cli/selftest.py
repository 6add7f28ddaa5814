"""Checks that this machine's device computes correctly: products, masks, gradients (compared with
the CPU's), a training step, a resumed run, and decoding. It prints one report, which you can send
in. The exit code is 1 if a check fails."""

import argparse
from pathlib import Path

from clearhead.api.self_test import selftest
from clearhead.files import write_whole

CALLS = selftest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", help="cuda, mps or cpu (default: the accelerator that torch finds, or the cpu)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the report to a file")


def run(arguments: argparse.Namespace) -> int:
    report = selftest(arguments.device)
    print(report)
    if arguments.out is not None:
        write_whole(arguments.out, f"{report}\n")
        print(f"written: {arguments.out}")
    return 0 if report.passed else 1
