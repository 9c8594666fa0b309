"""Isobit's own PyTorch operators, in the namespace `isobit`.

`draw_key` has a side effect, so a graph never loses, merges or moves a draw. The others are statements of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch.fx.node import has_side_effect

_LOWEST = -(2**63)

SCHEMAS = (
    "words(Tensor key, SymInt n) -> Tensor",
    "adam_step_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, "
    "Tensor(d!)[] max_exp_avg_sqs, Tensor(e!)[] steps, float lr, float beta1, float beta2, float? weight_decay, "
    "float eps, bool decoupled, bool maximize, bool advance) -> ()",
    "sgd_step_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] buffers, float minus_lr, float? weight_decay, "
    "float? momentum, float dampening, bool nesterov, bool maximize, bool first) -> ()",
)


@cache
def library() -> torch.library.Library:
    """Defines the operators on first use; they stay for the life of the process, as compiled graphs call them."""
    lib = torch.library.Library("isobit", "FRAGMENT")
    lib.define("draw_key(Generator? generator=None) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
    lib.impl("draw_key", _draw, "CompositeExplicitAutograd")
    for schema in SCHEMAS:
        lib.define(schema)
    torch.library.register_fake("isobit::draw_key", lambda generator=None: _integers(()), lib=lib)
    torch.library.register_fake("isobit::words", lambda key, n: _integers((n,)), lib=lib)
    has_side_effect(torch.ops.isobit.draw_key.default)
    return lib


def draw_key(generator: torch.Generator | None = None) -> torch.Tensor:
    """64 bits from the generator (the default one, if none is given), as a 0-d i64 tensor."""
    library()
    key: torch.Tensor = torch.ops.isobit.draw_key(generator)
    return key


def _draw(generator: torch.Generator | None = None) -> torch.Tensor:
    return torch.empty((), dtype=torch.int64).random_(_LOWEST, None, generator=generator)


def _integers(shape: Sequence[int]) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.int64)
