"""Run a script under plain PyTorch and print a digest of the parameters after every optimizer step.

    python demo/plain_steps.py THREADS SCRIPT [ARGS...]

Lines that begin with "step " are this program's, on stderr; stdout is the script's.
"""

from __future__ import annotations

import hashlib
import runpy
import sys
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


def report_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Called by PyTorch after each step of any optimizer."""
    h = hashlib.blake2b(digest_size=8)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            h.update(parameter.detach().contiguous().numpy().tobytes())
    print("step", h.hexdigest(), file=sys.stderr)


def main() -> None:
    threads, *argv = sys.argv[1:]
    torch.set_num_threads(int(threads))
    register_optimizer_step_post_hook(report_step)
    sys.argv = argv
    runpy.run_path(argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
