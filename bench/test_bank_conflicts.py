"""The kernels of bank_conflicts.py make the requests that the model is asked about."""

import bank_conflicts
import numpy as np
import pytest

CASES = bank_conflicts.cases()


@pytest.mark.parametrize(
    "access", [access for _, access in CASES], ids=[f"{name}: {x.what}" for name, x in CASES]
)
def test_each_lane_gets_what_it_asks_for(access):
    out = bank_conflicts.launch(access, repeats=2)
    words, lane = access.addresses // 4, np.arange(32)
    if access.store:
        assert len(set(words)) == 32
        assert np.array_equal(out, 1 + lane)
    else:
        floats = np.arange(access.width // 4)
        assert np.array_equal(out, 2 * (words[:, None] + floats).sum(axis=1))


def test_the_counts_are_read_from_the_csv():
    """As ncu prints them: text first, one row a metric, numbers with commas."""
    rows = ['"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"']
    for number, _ in enumerate(CASES):
        for kind in ("ld", "st"):
            count = 1000 * (number + 1) if kind == ("st" if CASES[number][1].store else "ld") else 7
            rows.append(f'"{number}","k","{bank_conflicts.METRIC.format(kind)}","","{count:,}"')
    text = "\n".join(["==PROF== Connected", *rows])
    assert bank_conflicts.parse(text) == [number + 1 for number, _ in enumerate(CASES)]
    with pytest.raises(SystemExit, match="saw 1 launches"):
        bank_conflicts.parse("\n".join(rows[:3]))
