"""What is running, how far it is and how long it will take; nothing where nobody watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars


class Progress:
    """A bar for each stage on stderr. `when` is auto (only on a terminal), on or off."""

    def __init__(self, when: str) -> None:
        console = Console(stderr=True)
        self._bars = Bars(
            TextColumn("{task.description:<9}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("elapsed, about"),
            TimeRemainingColumn(),
            TextColumn("left"),
            TextColumn("{task.fields[item]}"),
            console=console,
            disable=when == "off" or (when == "auto" and not console.is_terminal),
        )

    def __enter__(self) -> Progress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Callable[[str], None]]:
        """A bar of `total` steps; call what it gives with the name of each finished item."""
        task = self._bars.add_task(name, total=total, item="")
        yield lambda item: self._bars.update(task, advance=1, item=item)
        self._bars.update(task, item="done")
