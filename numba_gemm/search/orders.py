"""The order in which a thread multiplies its columns, which only measuring can choose.

It does not change a result, but which registers the assembler deals out, and so how often two operands
of one multiply-add come from the same bank of the register file: several per cent between two orders,
and nothing in the machine code says how many (``bench/notes.md``).  Rungs that have one keep it in their
module as ``FOUND_ORDER``.  Each belongs to the very kernel it was searched for.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import random
from typing import Any

from ..rung import Rung
from ..tile import Tile
from .space import Candidate

__all__ = ["own_order", "permutations", "reordered"]

MOST_ORDERS = 10_000
"""More are refused: each has to be compiled."""

_own: dict[str, tuple[int, ...]] = {}
"""The orders that modules came with, where :func:`reordered` has replaced them."""


def _module(rung: Rung) -> Any:
    return importlib.import_module(f"numba_gemm.rungs.{rung.name}")


def own_order(rung: Rung) -> tuple[int, ...]:
    """The order of *rung*'s own kernel.  Raises ValueError where it has none, or its tile another."""
    order: tuple[int, ...] = _own.get(rung.name, getattr(_module(rung), "FOUND_ORDER", ()))
    if not order or rung.tile is None or len(order) != rung.tile.TN:
        raise ValueError(f"the rung {rung.name} has no order of columns to search for")
    return order


def permutations(rung: Rung, count: int, seed: int) -> list[Candidate]:
    """*count* orders for *rung*'s own tile: its own, one after the other, even before odd, random ones.

    The same seed gives the same ones.  Raises ValueError where the rung has none, or not so many.
    """
    own = own_order(rung)
    columns = len(own)
    most = min(MOST_ORDERS, math.factorial(columns))
    if count > most:
        raise ValueError(
            f"{count} orders of {columns} columns are too many; no more than {most} are tried"
        )
    rng = random.Random(seed)
    plain = tuple(range(columns))
    found = dict.fromkeys((own, plain, (*plain[::2], *plain[1::2])))
    while len(found) < count:
        found[tuple(rng.sample(plain, columns))] = None
    return [Candidate(rung.name, rung.tile, order) for order in list(found)[:count]]


def reordered(rung: Rung, tile: Tile | None, order: tuple[int, ...]) -> Rung:
    """*rung* as it is if its module had *order* as its ``FOUND_ORDER``; () is its own.

    The module is changed, and what it has built is dropped: this is for processes that do nothing else.
    """
    if not order and rung.name not in _own:
        return rung
    module = _module(rung)
    _own.setdefault(rung.name, module.FOUND_ORDER)
    order = order or _own[rung.name]
    if order != module.FOUND_ORDER:
        module.FOUND_ORDER = order
        for function in vars(module).values():
            if hasattr(function, "cache_clear"):
                function.cache_clear()
    if order == _own[rung.name] or rung.make is None:
        return rung
    own_tile = tile or rung.tile
    assert own_tile
    return dataclasses.replace(rung, tile=own_tile, kernel=rung.make(own_tile))
