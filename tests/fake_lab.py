"""A lab for tests of the search: kernels that take no time to compile, on a device that is not there."""

import os
import random

from numba_gemm.search.halving import CandidateError


class FakeLab:
    """Times by a formula that a tile's place in a list decides, and counts what it is asked.

    *broken* has the step in which a candidate fails.  *dies_after* races, it kills its process.
    """

    def __init__(self, speeds, broken=(), seed=0, log=None, dies_after=None):
        self.speeds = speeds
        self.broken = dict(broken)
        self.rng = random.Random(seed)
        self.log = log
        self.dies_after = dies_after
        self.raced = []
        self.verified = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def ready(self, candidates):
        """Compiles nothing."""
        for candidate in candidates:
            wrong = self.broken.get(candidate) == "compile"
            yield candidate, "ptxas gave up" if wrong else None

    def race(self, candidate, shape, rounds):
        """Its time, give or take a little of noise."""
        if self.dies_after is not None and len(self.raced) == self.dies_after:
            os.kill(os.getpid(), 9)
        if self.broken.get(candidate) == "launch":
            raise CandidateError("launch", "an illegal address")
        self.raced.append((candidate, rounds))
        if self.log:
            with open(self.log, "a") as file:
                print(candidate, rounds, file=file)
        return tuple(
            self.speeds[candidate] * (1 + 0.001 * self.rng.random() / rounds) for _ in range(rounds)
        )

    def verify(self, candidate, shape):
        """Whether it is one of those that are right."""
        self.verified.append(candidate)
        if self.broken.get(candidate) == "verify":
            raise CandidateError("verify", "the entry at (0, 0) is wrong")

    def race_cublas(self, shape, rounds):
        """One millisecond."""
        return (1e-3,) * rounds
