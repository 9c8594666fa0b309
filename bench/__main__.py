"""python -m bench [--threads N] [CASE...]: prints each figure as it is measured, with its goal."""

from __future__ import annotations

import argparse
import os
import platform

import torch
from rich.console import Console

from bench.cases import CASES, Row

console = Console(highlight=False, width=118)


def show(row: Row) -> None:
    colour = "green" if row.reached else "yellow"
    line = f"{row.what:32s} {row.ours:>14s} {row.peer:>14s} "
    console.print(line + f"[{colour}]{row.value:>10s}[/]   {row.goal}{'' if row.reached else '   falls short'}")


def warn_of_load() -> None:
    """PyTorch's OpenMP threads wait spinning, so on a busy machine it is the peer's figures that suffer most."""
    load = os.getloadavg()[0]
    if load > 0.5:
        console.print(f"[red]load average {load:.1f}: other programs run, these figures mean little[/]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    args = parser.parse_args()
    warn_of_load()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    console.print(f"torch {torch.__version__}, {platform.machine()}, {args.threads} threads; by turns, medians")
    console.print(f"{'':32s} {'Isobit':>14s} {'peer':>14s} {'':>10s}   goal", style="dim")
    for name in args.cases or CASES:
        for row in CASES[name](args.threads):
            show(row)


if __name__ == "__main__":
    main()
