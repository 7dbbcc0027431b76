"""The search: its space, the order in it, the race, and what survives an interruption."""

import dataclasses
import functools
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_lab import FakeLab

from numba_gemm import LADDER, Tile, records
from numba_gemm.model import devices
from numba_gemm.problem import Problem
from numba_gemm.rungs import async_copy, double_buffered, naive, vectorized
from numba_gemm.search import predict
from numba_gemm.search.halving import CandidateError, Heat, State, ranked, search, seconds_left
from numba_gemm.search.journal import Journal, JournalBusyError, Outcome
from numba_gemm.search.lab import LabError, ProcessLab
from numba_gemm.search.orders import own_order, permutations, reordered
from numba_gemm.search.portfolio import PORTFOLIO
from numba_gemm.search.space import RANGES, Candidate, enumerate_space, tiles

H200 = devices.named("H200")
SHAPE = (512, 512, 512)
ABOUT = {"what": "a test"}
CANDIDATES = [Candidate("vectorized", Tile(BM, 64, 8, 4, 4)) for BM in range(1, 41)]
SPEEDS = {candidate: 1e-3 * (1 + n % 13 + n / 100) for n, candidate in enumerate(CANDIDATES)}
FASTEST = CANDIDATES[0]


# The space ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def space():
    return enumerate_space(vectorized.RUNG, lambda tile: predict.limits(tile, H200))


def test_the_space_has_the_published_tiles(space):
    """Boehm's for the A6000 and Salykova's."""
    assert Tile(BM=128, BN=128, BK=16, TM=8, TN=8) in space.legal
    salykova = Tile(BM=128, BN=128, BK=8, TM=8, TN=8, WM=32, WN=64, stages=2)
    assert salykova.threads == 256
    assert all(value in RANGES[name] for name, value in dataclasses.asdict(salykova).items())
    assert not double_buffered.RUNG.why_illegal(salykova)


def test_every_combination_is_legal_or_has_the_rungs_own_reasons(space):
    """Nothing is left out, and legality is the rung's."""
    expected = math.prod(len(RANGES[name]) for name in ("BM", "BN", "BK", "TM", "TN"))
    assert len(space.legal) + len(space.refused) == expected
    assert not set(space.legal) & set(space.refused)
    for tile in space.legal[::40]:
        assert not vectorized.RUNG.why_illegal(tile)
    for tile, reasons in list(space.refused.items())[::100]:
        assert list(reasons) == vectorized.RUNG.why_illegal(tile)


@pytest.mark.parametrize(
    ("rung", "tile", "reason"),
    [
        (vectorized.RUNG, Tile(128, 128, 8, TM=2, TN=8), "TM=2 is not a multiple of 4"),
        (vectorized.RUNG, Tile(256, 256, 8, TM=4, TN=4), "4096 threads a block are more than 1024"),
        (vectorized.RUNG, Tile(256, 256, 8, TM=16, TN=16), "takes 312 registers"),
        (vectorized.RUNG, Tile(256, 256, 32, TM=8, TN=8), "bytes of shared memory are more than"),
        (
            async_copy.RUNG,
            Tile(128, 128, 8, TM=8, TN=8, WM=64, WN=64, stages=2),
            "a warp has 32 lanes",
        ),
        (
            async_copy.RUNG,
            Tile(64, 64, 8, TM=8, TN=8, WM=128, WN=32, stages=2),
            "WM=128 does not divide BM=64",
        ),
    ],
)
def test_the_reasons_for_a_refusal(rung, tile, reason):
    assert any(reason in why for why in rung.why_illegal(tile)), rung.why_illegal(tile)
    values = dataclasses.asdict(tile).items()
    assert all(value in (None, 1, *RANGES[name]) for name, value in values)  # it is tried


def test_kinds_of_reasons(space):
    """Numbers do not tell reasons apart, the most frequent comes first."""
    reasons = space.reasons()
    counts = [count for _, count, _ in reasons]
    assert counts == sorted(counts, reverse=True)
    assert len(reasons) == len({kind for kind, _, _ in reasons}) < 16
    [(count, example)] = [(n, one) for kind, n, one in reasons if kind == "TM=# is not a multiple of #"]
    assert count == sum(tile.TM == 2 for tile in space.refused if tile.BM % tile.TM == 0)
    assert example == "TM=2 is not a multiple of 4"


def test_what_the_device_does_not_hold_is_refused():
    """By the model's occupancy, after the rung had nothing against it."""
    small = dataclasses.replace(
        H200, limits=dataclasses.replace(H200.limits, registers=8192, shared_bytes=8192)
    )
    [why, more] = predict.limits(Tile(128, 128, 8, TM=8, TN=8), small)
    assert "too few registers" in why
    assert "too little shared memory" in more
    tile = Tile(128, 128, 8, TM=8, TN=8)
    ranges = {name: (getattr(tile, name),) for name in RANGES}
    [[reason, _]] = enumerate_space(
        vectorized.RUNG, lambda tile: predict.limits(tile, small), ranges
    ).refused.values()
    assert reason == why
    assert not predict.limits(tile, H200)


def test_a_rungs_own_tile_is_always_tried():
    """Even where the ranges miss it."""
    ranges = dict.fromkeys(RANGES, (16,))
    assert vectorized.RUNG.tile in set(tiles(vectorized.RUNG, ranges))


def test_a_rung_without_tile_has_no_space():
    with pytest.raises(ValueError, match="naive has no tile parameters"):
        list(tiles(naive.RUNG))


# The order ----------------------------------------------------------------------------------------


def test_the_order_is_the_models_but_for_every_fourth():
    """And a seed decides those."""
    predicted = {candidate: n for n, candidate in enumerate(reversed(CANDIDATES))}
    order = ranked(CANDIDATES, predicted.__getitem__, seed=1)
    assert sorted(order, key=str) == sorted(CANDIDATES, key=str)
    assert order == ranked(CANDIDATES, predicted.__getitem__, seed=1)
    assert order != ranked(CANDIDATES, predicted.__getitem__, seed=2)
    by_model = [candidate for place, candidate in enumerate(order) if place % 4 != 3]
    assert by_model == sorted(by_model, key=predicted.__getitem__)
    assert order[:3] == CANDIDATES[:-4:-1]
    with pytest.raises(ValueError, match="explore is 1"):
        ranked(CANDIDATES, predicted.__getitem__, seed=1, explore=1)


def test_the_model_prefers_what_is_known_to_be_fast():
    """Large tiles for a large C, smaller ones for a small C, sharing k where it is long."""

    def seconds(rung, tile, *shape):
        return predict.seconds(rung, tile, Problem(*shape), H200)

    large = Tile(128, 256, 8, TM=8, TN=16, WM=64, WN=64, stages=2)
    small = Tile(32, 64, 16, TM=4, TN=4, WM=16, WN=32, stages=3)
    rung, split = async_copy.RUNG, LADDER[-1]
    assert seconds(rung, large, 8192, 8192, 8192) < seconds(rung, small, 8192, 8192, 8192)
    assert seconds(rung, small, 256, 256, 256) < seconds(rung, large, 256, 256, 256)
    assert seconds(split, large, 256, 256, 65536) < 0.1 * seconds(rung, large, 256, 256, 65536)
    floor = 2 * 4096**3 / H200.fp32_peak
    assert floor < seconds(rung, large, 4096, 4096, 4096) < 1.5 * floor
    assert seconds(naive.RUNG, None, 4096, 4096, 4096) > 10 * floor


def test_a_tile_that_does_not_fit_takes_for_ever():
    tiny = dataclasses.replace(H200, limits=dataclasses.replace(H200.limits, registers=1024))
    assert predict.seconds(vectorized.RUNG, None, Problem(*SHAPE), tiny) == math.inf


# The race -----------------------------------------------------------------------------------------


def race(tmp_path, lab, name="race.jsonl", candidates=CANDIDATES, **options):
    with Journal(tmp_path / name, ABOUT) as journal:
        return search(candidates, SHAPE, lab, journal, **options)


def test_losers_are_dropped_early(tmp_path):
    """Forty run one round, ten three, four seven; the fastest is verified and wins."""
    lab = FakeLab(SPEEDS)
    result = race(tmp_path, lab)
    rounds = [rounds for _, rounds in lab.raced]
    assert [rounds.count(n) for n in (1, 3, 7)] == [40, 10, 4]
    assert result.winner.candidate == FASTEST
    assert lab.verified == [FASTEST]
    assert len(result.standings) == len(result.first) == 40
    assert [standing.heat for standing in result.standings] == [2] * 4 + [1] * 6 + [0] * 30
    for heat in range(3):
        times = [standing.seconds for standing in result.standings if standing.heat == heat]
        assert times == sorted(times)


def test_the_same_seed_gives_the_same_race(tmp_path):
    """Order, noise and outcome."""
    labs = [FakeLab(SPEEDS, seed=seed) for seed in (1, 1)]
    first, second = (
        race(tmp_path, lab, f"{n}.jsonl", ranked(CANDIDATES, SPEEDS.__getitem__, seed=5))
        for n, lab in enumerate(labs)
    )
    assert labs[0].raced == labs[1].raced
    assert first == second


def test_failures_are_recorded_and_passed_over(tmp_path):
    """One that does not compile, one that does not launch, one that is wrong: the fourth wins."""
    order = sorted(CANDIDATES, key=SPEEDS.__getitem__)
    broken = dict(zip(order, ("compile", "launch", "verify"), strict=False))
    lab = FakeLab(SPEEDS, broken)
    result = race(tmp_path, lab)
    assert result.winner.candidate == order[3]
    assert {o.candidate: o.failed for o in result.failures} == broken
    assert all(outcome.reason for outcome in result.failures)
    assert not {standing.candidate for standing in result.standings} & set(broken)
    recorded = [json.loads(line) for line in (tmp_path / "race.jsonl").read_text().splitlines()]
    assert [line["failed"] for line in recorded[1:]].count("verify") == 1

    again = FakeLab(SPEEDS)  # nothing is broken any more, but the journal says what was
    assert race(tmp_path, again).winner.candidate == order[3]
    assert again.raced == []


def test_no_winner_where_all_are_wrong(tmp_path):
    result = race(tmp_path, FakeLab(SPEEDS, dict.fromkeys(CANDIDATES, "verify")))
    assert result.winner is None
    assert result.standings == ()


def test_some_run_in_every_heat(tmp_path):
    """So that what the winner gained on them is measured as well as it."""
    slowest = max(CANDIDATES, key=SPEEDS.__getitem__)
    lab = FakeLab(SPEEDS)
    result = race(tmp_path, lab, always=[slowest])
    assert lab.raced[0] == (slowest, 1)
    assert (slowest, 7) in lab.raced
    assert [s.heat for s in result.standings if s.candidate == slowest] == [2]


def test_a_budget_leaves_the_last_ones_out(tmp_path):
    """The heat ends when it has spent its part; what must run does run."""
    heats = (Heat(1, 0.5, 0.5), Heat(2, 1, 0.5))
    slowest = max(CANDIDATES, key=SPEEDS.__getitem__)
    lab = FakeLab(SPEEDS)
    result = race(tmp_path, lab, budget=40, heats=heats, always=[slowest], clock=lambda: len(lab.raced))
    once = [candidate for candidate, rounds in lab.raced if rounds == 1]
    assert 15 < len(once) < 25
    assert result.left_out == 40 - len(once)
    assert once == [slowest, *CANDIDATES][: len(once)]
    assert [candidate for candidate, rounds in lab.raced if rounds == 2] == [FASTEST, slowest]
    assert result.winner.candidate == FASTEST
    assert result.standings[-1].candidate == slowest


def test_whoever_watches_sees_the_best_so_far(tmp_path):
    states = []
    race(tmp_path, FakeLab(SPEEDS), watch=states.append)
    first = [state for state in states if state.heat == 0]
    assert [state.done for state in first] == list(range(1, 41))
    best = [state.best.seconds for state in first]
    assert best == sorted(best, reverse=True)


def test_the_time_left():
    """What is left of this heat, and the later ones with fewer candidates and more rounds."""
    state = State(SHAPE, 0, 3, done=10, total=40, best=None)
    per_round = 8 / 10 / 4
    later = per_round * (10 * 6 + 4 * 10)
    assert seconds_left(state, 8.0) == pytest.approx(per_round * 4 * 30 + later)
    assert seconds_left(State(SHAPE, 2, 3, 4, 4, None), 8.0) == 0


# Interruptions ------------------------------------------------------------------------------------

KILLED = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from fake_lab import FakeLab
from test_search import SPEEDS, race
race(Path({folder!r}), FakeLab(SPEEDS, log={log!r}, dies_after={dies_after}))
"""


def test_a_killed_search_goes_on(tmp_path):
    """Nothing that was measured before is measured again, and the winner is the same."""
    log = tmp_path / "log"
    code = KILLED.format(
        tests=str(Path(__file__).parent), folder=str(tmp_path), log=str(log), dies_after=43
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    before = log.read_text().splitlines()
    assert len(before) == 43

    lab = FakeLab(SPEEDS, log=str(log))
    result = race(tmp_path, lab)
    everything = log.read_text().splitlines()
    assert len(everything) == len(set(everything)) == 40 + 10 + 4
    assert result.winner.candidate == FASTEST


def test_a_torn_last_line_is_dropped(tmp_path):
    """What a crash in the middle of writing leaves; the line before it counts."""
    path = tmp_path / "race.jsonl"
    outcome = Outcome(FASTEST, SHAPE, 0, (1e-3,))
    with Journal(path, ABOUT) as journal:
        journal.add(outcome)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"candidate": {"ru')
    with Journal(path, ABOUT) as journal:
        assert journal.outcomes == [outcome]
        journal.add(outcome)
    assert [json.loads(line) for line in path.read_text().splitlines()][1:] == [
        json.loads(json.dumps(dataclasses.asdict(outcome)))
    ] * 2


@pytest.mark.parametrize(
    "damage",
    [
        b"no JSON\n",
        b"\xff\xfe\n",
        json.dumps(ABOUT).encode() + b"\n[]\n",
        json.dumps(ABOUT).encode() + b'\n{"candidate": 3}\n',
        b'{"what": "another search"}\n',
        json.dumps(ABOUT).encode() + b"\n" + b"[" * 100_000 + b"\n",
        *(
            json.dumps(ABOUT).encode()
            + b"\n"
            + json.dumps(dataclasses.asdict(Outcome(FASTEST, SHAPE, 0, (1.0,))) | changes).encode()
            + b"\n"
            for changes in (
                {"seconds": [math.nan]},
                {"seconds": [-1e-3]},
                {"seconds": [10**400]},
                {"seconds": []},
                {"shape": [math.inf, 1, 1]},
                {"shape": [10**400, 1, 1]},
            )
        ),
    ],
)
def test_a_damaged_journal_is_set_aside(tmp_path, damage):
    """With a warning that names it, and kept."""
    path = tmp_path / "race.jsonl"
    path.write_bytes(damage)
    with pytest.warns(UserWarning, match="damaged"), Journal(path, ABOUT) as journal:
        assert journal.outcomes == []
    [aside] = tmp_path.glob("*.damaged-*")
    assert aside.read_bytes() == damage
    path.write_bytes(damage + b"again")
    with pytest.warns(UserWarning, match="damaged"), Journal(path, ABOUT):
        pass
    assert aside.read_bytes() == damage
    assert len(list(tmp_path.glob("*.damaged-*"))) == 2


def test_one_search_at_a_time(tmp_path):
    path = tmp_path / "race.jsonl"
    with Journal(path, ABOUT), pytest.raises(JournalBusyError, match="another process"):
        Journal(path, ABOUT).__enter__()
    with Journal(path, ABOUT):
        pass


def test_a_finished_search_begins_anew(tmp_path):
    path = tmp_path / "race.jsonl"
    with Journal(path, ABOUT) as journal:
        journal.add(Outcome(FASTEST, SHAPE, 0, (1e-3,)))
        kept = journal.finish()
    assert kept.exists()
    with Journal(path, ABOUT) as journal:
        assert journal.outcomes == []


# Processes ----------------------------------------------------------------------------------------


def do_nothing(*arguments):
    """Start a process of the lab without a GPU."""


def misbehave(candidate, compiled, shape, seed, rounds):
    """A candidate of any kind, by its BM."""
    how = candidate.tile.BM
    if how == 1:
        time.sleep(60)
    if how == 2:
        os._exit(11)
    if how == 3:
        raise RuntimeError("an illegal\naddress " + "x" * 1000)
    return (1e-3,) * rounds


def test_a_candidate_that_hangs_or_kills_its_process_is_one_failure(monkeypatch):
    """The next one runs in a new process."""
    monkeypatch.setattr("numba_gemm.search.workers.start_timer", do_nothing)
    monkeypatch.setattr("numba_gemm.search.workers.race", misbehave)
    with ProcessLab(H200, [SHAPE], 0, 1) as lab:
        for how, reason in ((1, "within 2 s"), (2, "ended with 11"), (3, "RuntimeError: an illegal")):
            lab.timing_timeout = 2 if how == 1 else 60
            with pytest.raises(CandidateError, match=reason) as caught:
                lab.race(CANDIDATES[how - 1], SHAPE, 1)
            assert caught.value.step == "launch"
            assert "\n" not in caught.value.reason
            assert len(caught.value.reason) <= 300
            lab.timing_timeout = 60
            assert lab.race(CANDIDATES[3], SHAPE, 2) == (1e-3, 1e-3)


def fail(*arguments):
    """A process of the lab that does not start."""
    raise RuntimeError("there is no libNVVM")


def test_a_lab_that_does_not_start(monkeypatch):
    """Is nobody's failure, and none is recorded."""
    monkeypatch.setattr("numba_gemm.search.workers.start_compiler", fail)
    monkeypatch.setattr("numba_gemm.search.workers.start_timer", fail)
    with ProcessLab(H200, [SHAPE], 0, 1) as lab:
        with pytest.raises(LabError, match="that compile do not start"):
            list(lab.ready(CANDIDATES[:2]))
        with pytest.raises(LabError, match="that times does not start"):
            lab.race(FASTEST, SHAPE, 1)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "candidate",
    [PORTFOLIO[5], Candidate("tiled2d", Tile(8, 8, 8)), Candidate("naive", None)],
    ids=str,
)
def test_what_is_compiled_elsewhere_is_launched_here(candidate):
    """Timed and right, and nothing is compiled where it is timed."""
    shapes = [(64, 64, 4096), (65, 63, 77)]
    with ProcessLab(devices.current(), shapes, 0, 1) as lab:
        assert list(lab.ready([candidate])) == [(candidate, None)]
        for shape in shapes:
            lab.verify(candidate, shape)
            assert min(lab.race(candidate, shape, 2)) > 0
        assert lab._on_device(compiled_here, candidate) == 0


def compiled_here(candidate):
    """How many kernels this process has compiled for a candidate itself."""
    [rung] = [rung for rung in LADDER if rung.name == candidate.rung]
    return sum(rung.build(candidate.tile)._cache_misses.values())


def test_compiling_in_other_processes():
    """A kernel for a GPU that is not there, and a tile that makes none; both in order."""
    pytest.importorskip("cuda.bindings.nvvm", reason="Numba compiles by libNVVM")
    good, bad = Candidate("tiled2d", Tile(8, 8, 8)), Candidate("tiled2d", Tile(8, 16, 8))
    with ProcessLab(H200, [SHAPE, (7, 7, 7)], 0, 2) as lab:
        [(first, reason), (second, why)] = lab.ready([good, bad])
        assert (first, reason, second) == (good, None, bad)
        assert "BM = BN = BK" in why
        compiled = lab._compiled[good]
        assert compiled.launches == {SHAPE: (0,), (7, 7, 7): (0,)}
        assert len(compiled.kernels) == 1
        assert b"\x7fELF" in compiled.kernels[0]


# Orders of columns --------------------------------------------------------------------------------


def test_orders_to_try():
    """Its own first, two plain ones, then permutations that the seed decides."""
    own = double_buffered.FOUND_ORDER
    found = permutations(double_buffered.RUNG, 20, seed=1)
    orders = [candidate.order for candidate in found]
    assert orders[0] == own
    assert orders[1][:4] == (0, 1, 2, 3)
    assert orders[2][:4] == (0, 2, 4, 6)
    assert len(set(orders)) == 20
    assert all(sorted(order) == list(range(16)) for order in orders)
    assert found == permutations(double_buffered.RUNG, 20, seed=1)
    assert orders[:3] == [c.order for c in permutations(double_buffered.RUNG, 20, seed=2)[:3]]
    assert orders != [c.order for c in permutations(double_buffered.RUNG, 20, seed=2)]
    assert records.parse(json.dumps(found[3].as_dict()).encode(), Candidate) == found[3]
    four = dataclasses.replace(double_buffered.RUNG, tile=Tile(64, 64, 8, 4, 4, 32, 16, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(double_buffered, "FOUND_ORDER", (0, 1, 2, 3))
        assert len(permutations(four, 24, 0)) == 24
        with pytest.raises(ValueError, match="25 orders of 4 columns are too many; no more than 24"):
            permutations(four, 25, 0)
    with pytest.raises(ValueError, match="vectorized has no order"):
        permutations(vectorized.RUNG, 2, 0)


def columns_of(kernel):
    """The order of columns that a kernel was built with, found in what its functions close over."""
    function = getattr(kernel, "fn", None) or kernel.py_func
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if name == "COLUMNS":
            return cell.cell_contents
        value = cell.cell_contents
        if hasattr(value, "fn") or hasattr(value, "py_func"):
            columns = columns_of(value)
            if columns:
                return columns
    return None


def test_another_order_is_another_kernel(monkeypatch):
    """For any tile with as many columns, and afterwards the rung is what it was."""
    own = double_buffered.FOUND_ORDER
    build = functools.cache(double_buffered.build.__wrapped__)  # other tests know the real one's kernels
    monkeypatch.setattr(double_buffered, "build", build)
    rung = dataclasses.replace(double_buffered.RUNG, make=build)
    monkeypatch.setattr("numba_gemm.search.orders._own", {})
    backwards = tuple(range(15, -1, -1))
    assert reordered(rung, None, ()) is rung
    try:
        changed = reordered(rung, rung.tile, backwards)
        assert columns_of(changed.build(rung.tile)) == backwards
        assert columns_of(rung.kernel) == own
        assert own_order(rung) == own
    finally:
        assert reordered(rung, rung.tile, ()) is rung
    assert double_buffered.FOUND_ORDER == own
    assert columns_of(double_buffered.build(rung.tile)) == own


# The portfolio ------------------------------------------------------------------------------------


@pytest.mark.parametrize("candidate", PORTFOLIO, ids=str)
def test_the_portfolio_is_legal(candidate):
    """On every GPU of the table that runs the rung."""
    [rung] = [rung for rung in LADDER if rung.name == candidate.rung]
    assert not rung.why_illegal(candidate.tile)
    for gpu in devices.GPUS:
        assert not predict.limits(candidate.tile, gpu)
