"""From the words of a shell or of make to exit codes. Importing any of it settles what programs are started in."""

from specstudy.command_line import (
    interruption,  # noqa: F401 - first: what follows takes its time
    surroundings,  # noqa: F401 - before the libraries whose environment it settles
)
