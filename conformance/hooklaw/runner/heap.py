"""The heap of a process that executes rules: what stays is set aside, so that few objects are looked through.

Rules on lifetimes collect all garbage several times, and a framework has hundreds of thousands of objects.
"""

import gc
import sys

MANY = 50
"""So many new modules are a part of a framework that a rule has loaded."""
YOUNG = 200_000
"""Objects that a rule makes before garbage is collected of itself; a rule whose law it is collects garbage by name."""
GROWN = 5_000
"""Objects that rules may leave, as garbage or in records, before they are looked through."""
_modules = 0
"""How many modules there were when what was loaded was set aside."""


def begin() -> None:
    """Leave garbage alone until the heap is settled: a framework that loads makes little."""
    global _modules  # noqa: PLW0603 - a process has one heap
    _modules = 0
    gc.disable()


def settle(*, after_error: bool = False) -> None:
    """Set aside what has been loaded, or what many rules have left that is no garbage.

    An error may keep alive what a call had entered, such as the saved-tensor hooks of a region: it must not stay.
    """
    global _modules  # noqa: PLW0603 - a process has one heap
    if after_error:
        gc.collect()
    if len(sys.modules) > _modules + MANY:
        _modules = len(sys.modules)
        gc.freeze()
        gc.set_threshold(YOUNG)
        gc.enable()
    elif gc.get_count()[0] > GROWN:
        gc.collect(0)
        gc.freeze()


def sweep() -> None:
    """Collect the garbage of a rule, and set aside what its framework keeps of it for good.

    What a rule made is young; the old generation would cost ten times as much. Of what stays, each later rule that
    collects all garbage would look through all again.
    """
    gc.collect(1)
    gc.freeze()
