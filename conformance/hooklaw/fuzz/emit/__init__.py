"""Printing a program as plain torch code; importing the package registers the code of every operation."""

from hooklaw.fuzz.emit import _functions, _hooks, _modules, _passes, _regions, _state, _statements

__all__ = ["_functions", "_hooks", "_modules", "_passes", "_regions", "_state", "_statements"]
