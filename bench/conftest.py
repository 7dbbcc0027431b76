"""Benchmarks measure device time, and a plain ``pytest`` runs each of them once, untimed."""

import pytest

# Options with which somebody asks for measurements; without one of them a benchmark is a smoke test.
ASKING = ("only", "enable", "json", "save", "autosave", "compare")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    asked = any(getattr(config.option, f"benchmark_{option}", None) for option in ASKING)
    if not asked:
        config.option.benchmark_disable = True


def pytest_collection_modifyitems(config, items):
    """With ``--benchmark-only``, leave the tests out instead of listing a skip for each."""
    if config.option.benchmark_only:
        kept = [item for item in items if "benchmark" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept
