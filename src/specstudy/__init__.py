"""specstudy: does prefill attention predict decode entropy, and does that predict speculative acceptance?"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from specstudy.tables.run import Run

__version__ = "0.1.0"
__all__ = ["__version__", "open_run"]


def open_run(path: str | os.PathLike[str]) -> Run:
    """Opens a run for reading, such as `open_run("outputs/latest")`: `.manifest`, `.config`, `.table(name)`.

    Needs no torch. Raises `specstudy.errors.UserError` if there is no run at that path.
    """
    # Imported here, so that importing the package costs nothing and needs neither pandas nor pyarrow.
    from specstudy.tables.run import open_run as open_existing

    return open_existing(path)
