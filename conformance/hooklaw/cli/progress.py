"""Progress: a line on stderr that is rewritten on a terminal; elsewhere each text is a new line."""

import sys
from typing import TextIO

CLEARED = "\r\x1b[K"


class StatusLine:
    """The line; a verb adds what it counts."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()

    def say(self, text: str) -> None:
        """Show a text."""
        self._stream.write(f"{CLEARED}{text}" if self._live else f"{text}\n")
        self._stream.flush()

    def update(self, text: str) -> None:
        """Show a text on a terminal only."""
        if self._live:
            self.say(text)

    def end(self) -> None:
        """Clear the line."""
        self.update("")
