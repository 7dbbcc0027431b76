"""Make walkthrough.ipynb of walkthrough.py: execute every cell in a fresh kernel and keep what came out.

    python notebooks/execute.py [--output FILE]

The text to change is walkthrough.py; the notebook is only ever made.  The same text gives the same
notebook, cell by cell, so that a difference is one of content.  A cell that fails ends it, and nothing
is written.
"""

import argparse
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
TEXT, NOTEBOOK = HERE / "walkthrough.py", HERE / "walkthrough.ipynb"
SECONDS_A_CELL = 600


def execute(text: Path) -> nbformat.NotebookNode:
    """The notebook of a text in jupytext's percent format, with the outputs of a fresh run."""
    notebook = jupytext.read(text)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
    client = NotebookClient(
        notebook,
        timeout=SECONDS_A_CELL,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(HERE)}},
    )
    client.execute()
    return notebook


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--output", type=Path, default=NOTEBOOK, help="where to write it")
    output = parser.parse_args().output
    nbformat.write(execute(TEXT), output)
