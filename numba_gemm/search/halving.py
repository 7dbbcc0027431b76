"""A race among candidates: many run a short heat, the faster ones a longer one, the winner is checked.

A candidate that is twice as slow as another shows it in one round; two that are within a per cent of
each other need several.  So every candidate runs one round, the fastest quarter of them three, and the
fastest quarter of those seven: successive halving, with quarters.

Source: K. Jamieson and A. Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter
Optimization", 2016.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from .journal import Journal, Outcome, Shape
from .space import Candidate

__all__ = [
    "HEATS",
    "CandidateError",
    "Heat",
    "Lab",
    "Result",
    "Standing",
    "State",
    "drawn_at_random",
    "ranked",
    "search",
    "seconds_left",
]


EXPLORE = 4
"""One in so many candidates is tried out of turn."""


class CandidateError(RuntimeError):
    """A candidate failed in *step*, ``compile``, ``launch`` or ``verify``; the message says why."""

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(step, reason)
        self.step = step
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.step}: {self.reason}"


class Lab(Protocol):
    """What compiles and times candidates: :class:`numba_gemm.search.lab.ProcessLab`."""

    def ready(self, candidates: Sequence[Candidate]) -> Iterator[tuple[Candidate, str | None]]:
        """Each candidate in order as soon as it is compiled, and why it does not compile or None."""

    def race(self, candidate: Candidate, shape: Shape, rounds: int) -> tuple[float, ...]:
        """Device time of one launch, in seconds, for each of *rounds*; CandidateError if it fails."""

    def verify(self, candidate: Candidate, shape: Shape) -> None:
        """Compare its result with numpy's; CandidateError where it is wrong."""


@dataclass(frozen=True)
class Heat:
    """One pass over the candidates: *rounds* for each, then the fastest *keep* of them go on.

    *until* is the part of the budget that may be spent when the heat ends.
    """

    rounds: int
    keep: float
    until: float


HEATS = (Heat(1, 0.25, 0.75), Heat(3, 0.25, 0.9), Heat(7, 1.0, 1.0))

SURVIVORS = 4
"""As many candidates go on at least."""


@dataclass(frozen=True)
class Standing:
    """How far a candidate came: the *heat* it was last timed in, and the median *seconds* there."""

    candidate: Candidate
    heat: int
    seconds: float


@dataclass(frozen=True)
class Result:
    """The end of a search on one shape.

    *standings* is everybody that was timed, the fastest first: by the heat that they came to, then by
    their time in it.  *winner* is the fastest whose result
    numpy confirms, or None where there is none.  *failures* says what failed, and *left_out* how many
    were not tried for lack of time.
    """

    shape: Shape
    winner: Standing | None
    standings: tuple[Standing, ...]
    failures: tuple[Outcome, ...]
    first: tuple[Outcome, ...]
    left_out: int


@dataclass(frozen=True)
class State:
    """Where a search is, for whoever watches: *done* of *total* in this heat, and the best of it."""

    shape: Shape
    heat: int
    heats: int
    done: int
    total: int
    best: Standing | None


def seconds_left(state: State, seconds: float, heats: Sequence[Heat] = HEATS) -> float:
    """How long a search goes on, if the candidates so far took *seconds* in this heat.

    A candidate costs its rounds and three more, which the timer needs to find out how long one is.
    """
    here = heats[state.heat]
    cost = seconds / state.done / (here.rounds + 3)  # of one round
    left = cost * (here.rounds + 3) * (state.total - state.done)
    candidates = float(state.total)
    for heat, later in zip(heats[state.heat :], heats[state.heat + 1 :], strict=False):
        candidates = max(SURVIVORS, heat.keep * candidates)
        left += cost * (later.rounds + 3) * candidates
    return left


def ranked(
    candidates: Iterable[Candidate],
    predicted: Callable[[Candidate], float],
    seed: int,
    explore: int = EXPLORE,
) -> list[Candidate]:
    """The order in which to try *candidates*: by predicted time, and every *explore*-th at random.

    A model that is wrong about a candidate would otherwise keep it out of a search that has no time for
    all.  The same seed gives the same order; equals stay in theirs.  Candidates whose predicted time is
    infinite come last.
    """
    if explore < 2:
        raise ValueError(f"explore is {explore}; it should be at least 2")
    waiting = sorted(candidates, key=predicted)
    rng = random.Random(seed)
    order: list[Candidate] = []
    while waiting:
        at_random = drawn_at_random(len(order), explore)
        order.append(waiting.pop(rng.randrange(len(waiting)) if at_random else 0))
    return order


def drawn_at_random(place: int, explore: int = EXPLORE) -> bool:
    """Whether :func:`ranked` fills that *place*, counted from 0, at random."""
    return place % explore == explore - 1


def search(
    candidates: Sequence[Candidate],
    shape: Shape,
    lab: Lab,
    journal: Journal,
    *,
    always: Sequence[Candidate] = (),
    budget: float = math.inf,
    heats: Sequence[Heat] = HEATS,
    watch: Callable[[State], None] = lambda state: None,
    clock: Callable[[], float] = time.monotonic,
) -> Result:
    """Race *candidates*, in their order, on M x N x K = *shape*.

    Those of *always* come first and run in every heat: what the others are compared with.  What
    *journal* already has is not measured again.  *budget* is in seconds of *clock*: when a heat has
    spent its part, the candidates that it has not reached are left out, but for those of *always* and
    the fastest of the heat before.
    """
    start = clock()
    entrants = list(dict.fromkeys([*always, *candidates]))
    mine = [outcome for outcome in journal.outcomes if outcome.shape == shape]
    failures = {outcome.candidate: outcome for outcome in mine if outcome.failed}
    timed = {(o.candidate, o.heat): o for o in mine if not o.failed}
    latest: dict[Candidate, Standing] = {}
    merit: dict[Candidate, int] = {}  # the heat that each came to by its own speed
    left_out = 0

    def out(candidate: Candidate, heat: int) -> bool:
        """Whether it failed in *heat* or before; what verifying found comes after all of them."""
        outcome = failures.get(candidate)
        return outcome is not None and outcome.failed != "verify" and outcome.heat <= heat

    def fail(candidate: Candidate, heat: int, step: str, reason: str) -> None:
        failures[candidate] = Outcome(candidate, shape, heat, (), step, reason)
        journal.add(failures[candidate])

    running, qualified = entrants, set(entrants)
    for number, heat in enumerate(heats):
        best: Standing | None = None
        running = [candidate for candidate in running if not out(candidate, number)]
        waiting = [candidate for candidate in running if (candidate, number) not in timed]
        coming = lab.ready(waiting)
        finished: list[Candidate] = []
        for done, candidate in enumerate(running):
            if (candidate, number) not in timed:
                must = candidate in always or (number > 0 and done == 0)
                if not must and clock() - start > heat.until * budget:
                    left_out += number == 0
                    continue
                ready, reason = next(coming)
                while ready != candidate:  # those that were left out
                    ready, reason = next(coming)
                try:
                    if reason is not None:
                        raise CandidateError("compile", reason)
                    seconds = lab.race(candidate, shape, heat.rounds)
                except CandidateError as error:
                    fail(candidate, number, error.step, error.reason)
                    continue
                timed[candidate, number] = Outcome(candidate, shape, number, seconds)
                journal.add(timed[candidate, number])
            median = statistics.median(timed[candidate, number].seconds)
            latest[candidate] = Standing(candidate, number, median)
            if candidate in qualified:
                merit[candidate] = number
            finished.append(candidate)
            if best is None or median < best.seconds:
                best = latest[candidate]
            watch(State(shape, number, len(heats), done + 1, len(running), best))
        close = getattr(coming, "close", None)
        if close:
            close()  # what has not been reached need not be compiled
        finished.sort(key=lambda candidate: latest[candidate].seconds)
        survivors = finished[: max(SURVIVORS, math.ceil(heat.keep * len(finished)))]
        qualified = qualified.intersection(survivors)
        running = survivors + [c for c in finished if c in always and c not in survivors]

    standings = sorted(
        (standing for standing in latest.values() if standing.candidate not in failures),
        key=lambda standing: (-merit[standing.candidate], standing.seconds),
    )
    winner = None
    for standing in standings:
        try:
            lab.verify(standing.candidate, shape)
        except CandidateError as error:
            fail(standing.candidate, standing.heat, error.step, error.reason)
        else:
            winner = standing
            break
    return Result(
        shape,
        winner,
        tuple(standing for standing in standings if standing.candidate not in failures),
        tuple(failures.values()),
        tuple(outcome for (_, heat_number), outcome in timed.items() if heat_number == 0),
        left_out,
    )
