"""Themes: which instructions a program is made of, and how often each is drawn."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hooklaw.fuzz.draw import _functions, _hooks, _modules, _optimizers, _passes, _regions, _state, _values
from hooklaw.fuzz.draw.builder import ProgramDraft

DrawStep = Callable[[ProgramDraft], None]


MODULES = (_values, _functions, _hooks, _passes, _modules, _regions, _state, _optimizers)
"""Where the steps are."""


def steps(words: str) -> list[DrawStep]:
    """Return the steps of some names, each as often as the number after its name says."""
    found: list[DrawStep] = []
    for word in words.split():
        name, _, times = word.partition("*")
        found += [next(getattr(module, name) for module in MODULES if hasattr(module, name))] * int(times or 1)
    return found


STEPS = steps(
    "leaf*3 unary*16 binary*18 view*8 in_place*7 custom*7 "
    "forget*2 look*3 save by_integers own give flag bump value*2 channels_last "
    "hook*16 node_hook*10 post_accumulate*5 multi_grad*4 retain_grad*5 remove*4 "
    "backward*10 grad*5 edge zero mode context*9 saved_pair*2 read_saved*2 "
    "module*5 call*6 module_hook*7 checkpoint function*3 inference "
    "inside buffer registration_hook state*2 load state_hook sgd step*2 zero_grad step_hook step_in_backward"
)
"""Every step, as often as it is drawn."""


class Theme(NamedTuple):
    """Steps that belong together: those that are drawn more often, and those that begin and end a program."""

    often: Sequence[DrawStep]
    first: Sequence[DrawStep]
    last: Sequence[DrawStep]


def theme(often: str, first: str = "unary", last: str = "backward") -> Theme:
    """Return a theme by the names of its steps."""
    return Theme(steps(often), steps(first), steps(last))


APART = theme("context*2 forbid mode binary unary hook custom module_hook parallel backward grad")
"""Several threads."""
THEMES = (
    APART,
    Theme(STEPS, steps("unary"), steps("backward")),
    theme("unary binary*2 custom hook node_hook retain_grad backward grad*2 edge bump", "unary binary"),
    theme("unary binary context*2 retain_grad twice hook node_hook", "binary context binary", "twice backward"),
    theme("unary*2 forget*3 hook*2 remove*2 look*2 retain_grad node_hook backward value"),
    theme("unary*2 forget*3 context on_cpu custom backward", "context unary"),
    theme("view*2 in_place*3 unary custom hook*2 retain_grad several backward", "unary view", "backward*2"),
    theme("unrecorded view*3 unary look*2 hook in_place leave mode"),
    theme("edge*2 grad*2 custom*2 view unary hook in_place", "unary custom edge", "grad"),
    theme("own*2 give*2 view channels_last binary backward*2 zero", "channels_last own"),
    theme("binary unary custom context*2 saved_pair read_saved*2 in_place backward grad"),
    theme("in_place*4 binary*2 unary custom allow_mutation leave backward", "allow_mutation unary binary in_place"),
    theme("forbid*3 leave*3 context*2 unary binary backward", "unary forbid"),
    theme("module call module_hook*3 inside_module backward unary hook", "module module_hook call", "call backward"),
    theme("module call*2 module_hook*4 always copy unrecorded", "module*2 always module_hook*2 call", "call"),
    theme("module call*2 legacy_hook*3 module_hook copy remove backward", "module legacy_hook call", "call backward"),
    theme("multi_grad*2 hook binary custom view inside_multi_grad backward*2 grad", "unary multi_grad"),
    theme("post_accumulate node_hook hook binary leaf remove backward*2 zero flag look value"),
    theme(
        "checkpoint*6 unary binary*2 context*2 hook saved_pair read_saved*2 twice backward*2 grad", "unary checkpoint"
    ),
    theme("function*3 dirty*3 view*2 unary hook*2 retain_grad in_place grad backward", "unary function"),
    theme("inference*4 function unary binary in_place view bump own value backward", "inference unary"),
    theme(
        "anomaly not_a_number*3 unary binary hook node_hook context backward grad",
        "unary backward anomaly not_a_number",
    ),
    theme("leaf hook*2 save remove backward value*2", "hook save"),
    theme(
        "inside buffer registration_hook state*2 load*2 state_hook*4",
        "registration_hook module*2 sgd inside state_hook*3",
        "state load",
    ),
    theme(
        "step*3 zero_grad step_hook*4 step_in_backward remove backward*2 binary sgd", "sgd step_hook*2 binary", "step"
    ),
)
"""The themes of programs."""
