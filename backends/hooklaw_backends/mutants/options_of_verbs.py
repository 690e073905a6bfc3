"""Mutants that are wrong with one option of a verb: each fault of each option.

No rule need name them: the rules whose ids begin with the row's `chapters` are tried first, then all others.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, fresh, overriding
from hooklaw_backends.mutants.in_situations import named

NOT_GIVEN: Any = ...
SET = object()
"""Stands for a tensor or function that was given in an earlier call, and that need not live on."""
KEPT = (bool, int, float, str, type(None))
BESIDE = "ignored-beside-"
"""How the faults of an option that is ignored beside another begin; left out alone, all of them are."""


class Option(NamedTuple):
    """An option, and what is tried in place of it."""

    name: str
    verbs: tuple[str, ...]
    chapters: tuple[str, ...]
    """How the ids of the rules begin that are tried first."""
    default: Any = False
    """What its absence means; `NOT_GIVEN` if it must be given."""
    other: Any = True
    """A value that means something else than the default; `NOT_GIVEN` if there is none of its own."""
    place: int | None = None
    """Where it is among the arguments if it can be given without its name."""
    without: tuple[str, ...] = ()
    """Faults that make no difference, or of which no law speaks."""
    where: str = ""
    """What its verbs belong to, in words; by default the verbs themselves."""

    def is_set(self, value: Any) -> bool:
        """Whether a value is given that is not the default."""
        return value is not NOT_GIVEN and (type(value) is not type(self.default) or value != self.default)

    def among(self, given: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Return its value among the arguments of a call, or `NOT_GIVEN`."""
        if self.name in options or self.place is None or self.place >= len(given):
            return options.get(self.name, NOT_GIVEN)
        return given[self.place]

    def said(self) -> str:
        """Return the option in words."""
        return f"{self.name} of {self.where or ' and '.join(self.verbs)}"


class Call(NamedTuple):
    """A call of a verb with an option or without it."""

    given: Any
    """The option, or `NOT_GIVEN`."""
    before: list[Any]
    """What it was in the calls before this one."""
    option: Option
    others: tuple[Sequence[Any], Mapping[str, Any]] = ((), {})
    """All that the verb was given."""

    @property
    def set_before(self) -> list[Any]:
        """What it was in the calls before that set it."""
        return [value for value in self.before if self.option.is_set(value)]


Wrong = Callable[[Call], Any]
"""Returns what counts in place of an option that is given or not, `NOT_GIVEN` for its default."""


def _if(holds: Callable[[Call], Any], instead: Wrong) -> Wrong:
    return lambda call: instead(call) if holds(call) else call.given


def _is_set(call: Call) -> bool:
    return call.option.is_set(call.given)


def _none(_: Call) -> Any:
    return NOT_GIVEN


def _other(call: Call) -> Any:
    return call.option.other


def _set_twice(call: Call) -> bool:
    return len(call.set_before) >= TWICE


def _from_third(faults: dict[str, tuple[str, Wrong]], *names: str) -> dict[str, tuple[str, Wrong]]:
    """Return some faults as they are from the third call on."""
    found = {name: faults[name] for name in names}
    late: Callable[[Wrong], Wrong] = lambda wrong: _if(lambda call: len(call.before) >= TWICE, wrong)  # noqa: E731
    return {name + THIRD: (f"{words}, from the third call on", late(wrong)) for name, (words, wrong) in found.items()}


TWICE, THIRD = 2, "-third"
FAULTS: dict[str, tuple[str, Wrong]] = {
    "ignored": ("{} is ignored", _none),
    "ignored-later": ("{} is ignored if it was set before", _if(lambda call: call.set_before and _is_set(call), _none)),
    "ignored-third": (
        "{} is ignored if it was set twice before",
        _if(lambda call: _set_twice(call) and _is_set(call), _none),
    ),
    "ignored-at-first": ("{} is ignored in the first call that sets it", _if(lambda call: not call.set_before, _none)),
    "stays": (
        "{} stays set in the calls after one that sets it",
        _if(lambda call: call.given is NOT_GIVEN and call.set_before, lambda call: call.set_before[-1]),
    ),
    "stays-third": (
        "{} stays set in the calls after two that set it",
        _if(lambda call: call.given is NOT_GIVEN and _set_twice(call), lambda call: call.set_before[-1]),
    ),
}
"""Of each option."""
WITH_DEFAULT: dict[str, tuple[str, Wrong]] = {
    "set-by-its-default": (
        "{} is set if its default is given",
        _if(lambda call: call.given is not NOT_GIVEN and not _is_set(call), _other),
    ),
    "set-by-its-absence": ("{} is set if it is not given", _if(lambda call: call.given is NOT_GIVEN, _other)),
    "set-always": ("{} is always set", _other),
}
"""Of each option that has a default and a value that means something else."""
OF_THREE: dict[str, tuple[str, Wrong]] = {
    "false-ignored": ("{} is ignored if it is False", _if(lambda call: call.given is False, _none)),
    "true-ignored": ("{} is ignored if it is True", _if(lambda call: call.given is True, _none)),
    "opposite": ("{} means the opposite", _if(lambda call: isinstance(call.given, bool), lambda call: not call.given)),
}
"""Of each option whose default is neither True nor False, but depends on others."""
REQUIRED: dict[str, tuple[str, Wrong]] = {
    "always-true": ("{} counts as True", lambda _: True),
    "always-false": ("{} counts as False", lambda _: False),
    "opposite": ("{} means the opposite", lambda call: not call.given),
    "of-the-first-call": ("{} counts as in the first call", lambda call: [*call.before, call.given][0]),
    "of-the-call-before": ("{} counts as in the call before", lambda call: [call.given, *call.before][-1]),
}
"""Of each option that must be given."""
WITH_DEFAULT.update(_from_third(WITH_DEFAULT, "set-by-its-absence", "set-always"))
REQUIRED.update(_from_third(REQUIRED, "always-true", "always-false", "opposite"))


class _Remembering(Mutant):
    """A mutant that knows what an option was in earlier calls."""

    before = fresh(list[Any])


def made(option: Option, wrong: Wrong, *, is_kept: bool = False) -> type[Mutant]:
    """Return a mutant that makes of an option something else; `is_kept` if it has to keep tensors and functions."""

    def call(self: Any, old: Hook, *given: Any, **options: Any) -> Any:
        value = option.among(given, options)
        counts = wrong(Call(value, [*self.before], option, (given, {**options})))
        place = option.place if option.place is not None and option.name not in options else len(given)
        options.pop(option.name, None)
        given = (*given[:place], *given[place + 1 :])
        self.before.append(value if is_kept or value is NOT_GIVEN or isinstance(value, KEPT) else SET)
        if counts is NOT_GIVEN:
            return old(*given, **options)
        if option.place is not None and option.place == len(given):
            return old(*given, counts, **options)
        return old(*given, **options, **{option.name: counts})

    return overriding(*option.verbs, base=_Remembering)(call)


BOTH = ("register_state_dict_pre_hook", "register_state_dict_post_hook")
LOADING = ("register_load_state_dict_pre_hook", "register_load_state_dict_post_hook")
OPTIONS: dict[str, Option] = {
    "backward-retain-graph": Option(
        "retain_graph", ("backward",), ("retain-graph", "backward", "saved-tensor.release"), default=None
    ),
    "backward-create-graph": Option("create_graph", ("backward",), ("backward", "grad-accumulation", "double")),
    "backward-inputs-option": Option("inputs", ("backward",), ("backward",), default=None, other=NOT_GIVEN),
    "backward-gradient": Option(
        "gradient", ("backward",), ("backward", "root"), default=None, other=NOT_GIVEN, place=1
    ),
    "roots-gradients": Option(
        "gradients", ("backward_from_all",), ("backward", "root"), default=None, other=NOT_GIVEN, place=1
    ),
    "edge-gradient": Option(
        "gradient",
        ("backward_from_edge",),
        ("gradient-edge",),
        default=None,
        other=NOT_GIVEN,
        place=1,
        without=("stays",),
    ),
    "grad-retain-graph": Option("retain_graph", ("grad",), ("retain-graph", "grad"), default=None),
    "grad-create-graph": Option("create_graph", ("grad",), ("grad", "double-backward")),
    "grad-allow-unused": Option("allow_unused", ("grad",), ("grad",), default=None),
    "grad-is-grads-batched": Option(
        "is_grads_batched", ("grad",), ("grad",), without=("ignored-beside-materialize-grads",)
    ),
    "grad-materialize-grads": Option(
        "materialize_grads", ("grad",), ("grad",), without=("ignored-beside-is-grads-batched",)
    ),
    "grad-grad-outputs": Option(
        "grad_outputs",
        ("grad",),
        ("grad",),
        default=None,
        other=NOT_GIVEN,
        place=2,
        without=("ignored-beside-is-grads-batched",),
    ),
    "multi-grad-mode": Option("mode", ("register_multi_grad_hook",), ("multi-grad",), default="all", other="any"),
    "forward-pre-hook-prepend": Option("prepend", verbs.FORWARD_PRE[:1], ("module.forward",)),
    "forward-hook-prepend": Option("prepend", verbs.FORWARD[:1], ("module.forward",)),
    "backward-pre-hook-prepend": Option("prepend", verbs.FULL_BACKWARD_PRE[:1], ("module.full",)),
    "backward-hook-prepend": Option("prepend", verbs.FULL_BACKWARD[:1], ("module.full",)),
    "forward-pre-hook-with-kwargs": Option("with_kwargs", verbs.FORWARD_PRE[:1], ("module.forward",)),
    "forward-hook-with-kwargs": Option("with_kwargs", verbs.FORWARD[:1], ("module.forward",)),
    "forward-hook-always-call": Option("always_call", verbs.FORWARD[:1], ("module.forward.always",)),
    "global-forward-hook-always-call": Option("always_call", verbs.FORWARD[1:], ("module.forward.always",)),
    "state-dict-pre-hook-prepend": Option("prepend", BOTH[:1], ("optim",)),
    "state-dict-post-hook-prepend": Option("prepend", BOTH[1:], ("optim",)),
    "load-pre-hook-prepend": Option("prepend", LOADING[:1], ("optim",)),
    "load-post-hook-prepend": Option("prepend", LOADING[1:], ("optim",)),
    "checkpoint-use-reentrant": Option("use_reentrant", ("checkpoint",), ("checkpoint",), default=NOT_GIVEN),
    "checkpoint-preserve-rng-state": Option(
        "preserve_rng_state", ("checkpoint",), ("checkpoint",), default=True, other=False, without=(BESIDE,)
    ),
    "checkpoint-determinism-check": Option(
        "determinism_check", ("checkpoint",), ("checkpoint",), default="default", other="none"
    ),
    "checkpoint-debug": Option(
        "debug", ("checkpoint",), ("checkpoint",), without=(f"{BESIDE}context-fn", f"{BESIDE}determinism-check")
    ),
    "checkpoint-early-stop": Option("early_stop", ("checkpoint",), ("checkpoint",), default=True, other=False),
    "checkpoint-context-fn": Option(
        "context_fn", ("checkpoint",), ("checkpoint",), default=None, other=NOT_GIVEN, without=(f"{BESIDE}debug",)
    ),
    "sequential-use-reentrant": Option(
        "use_reentrant",
        ("checkpoint_sequential",),
        ("checkpoint-sequential",),
        default=NOT_GIVEN,
        without=(BESIDE,),
    ),
    "sequential-preserve-rng-state": Option(
        "preserve_rng_state", ("checkpoint_sequential",), ("checkpoint-sequential",), default=True, other=False
    ),
    "early-stop-enable": Option("enable", ("set_checkpoint_early_stop",), ("checkpoint",), default=NOT_GIVEN, place=0),
    "debug-enabled": Option("enabled", ("set_checkpoint_debug_enabled",), ("checkpoint",), default=NOT_GIVEN, place=0),
    "selective-allow-cache-entry-mutation": Option(
        "allow_cache_entry_mutation", ("create_selective_checkpoint_contexts",), ("checkpoint.selective",)
    ),
    "module-zero-grad-set-to-none": Option(
        "set_to_none", ("module_zero_grad",), ("module",), default=True, other=False
    ),
    "zero-grad-set-to-none": Option("set_to_none", ("zero_grad",), ("optim",), default=True, other=False),
    "state-dict-keep-vars": Option("keep_vars", ("state_dict",), ("state-dict",)),
    "check-nan": Option("check_nan", ("detect_anomaly",), ("anomaly",), default=True, other=False),
    "sgd-weight-decay": Option("weight_decay", ("sgd",), ("optim",), default=0.0, other=1.0),
    "step-closure": Option("closure", ("step",), ("optim",), default=None, other=NOT_GIVEN, without=("stays",)),
    "tensor-requires-grad": Option("requires_grad", ("tensor",), ("tensor-hook",)),
    "set-requires-grad": Option("requires_grad", ("set_requires_grad",), ("leaf",), default=NOT_GIVEN),
    "module-requires-grad": Option(
        "requires_grad", ("module_requires_grad_",), ("module",), default=True, other=False, place=1
    ),
    "train-mode": Option("mode", ("train",), ("module",), default=True, other=False, place=1),
    "inference-mode": Option("mode", ("inference_mode",), ("grad-mode",), default=True, other=False, place=0),
    "function-once-differentiable": Option(
        "once_differentiable", ("custom_function",), ("function", "custom"), without=("stays", "set-by-its-default")
    ),
    "function-clear-saved-tensors": Option(
        "clear_saved_tensors_on_access", ("custom_function",), ("function", "custom")
    ),
    "function-boxed-grads-call": Option("boxed_grads_call", ("custom_function",), ("function", "custom")),
}
"""The options.

Left out are pin_memory of save_on_cpu, which only an accelerator shows, with_kwargs of a forward hook on all modules,
which no page names, preserve_rng_state beside others, since numbers need not differ without it, that of a sequence
beside use_reentrant, whose rules need no generator, and zeros in a batch of gradients, whose shape no page gives. The
gradient of an edge may stay: no rule starts there without one, as a complex edge must have it. The rules of double
backward give no options, so what once_differentiable does to other Functions is not asked. Whether an option is given
by name or by place is the adapter's own: the protocol says how a verb is called.
"""


def _beside(option: Option) -> dict[str, tuple[str, Wrong]]:
    """Return the faults of an option that is ignored if another is set."""

    def ignored(other: Option) -> Wrong:
        return _if(lambda call: other.is_set(other.among(*call.others)), _none)

    others = [other for other in OPTIONS.values() if other != option and other.verbs == option.verbs]
    return {
        f"{BESIDE}{other.name.replace('_', '-')}": (f"{{}} is ignored if {other.name} is set", ignored(other))
        for other in others
    }


def _faults(option: Option) -> Iterator[tuple[str, str, Wrong]]:
    """Yield the name of each fault of an option, the fault in words, and the fault."""
    faults = dict(REQUIRED if option.default is NOT_GIVEN else FAULTS)
    if option.default is not NOT_GIVEN and option.other is not NOT_GIVEN:
        faults |= WITH_DEFAULT
    if option.default is None and option.other is True:
        faults |= OF_THREE
        del faults["set-by-its-default"]  # None is no value of its own
    faults |= {} if BESIDE in option.without else _beside(option)
    tried = [name for name in faults if name.removesuffix(THIRD) not in option.without]
    yield from ((name, *faults[name]) for name in tried)


def _all() -> Iterator[tuple[str, str, tuple[str, ...], type[Mutant]]]:
    """Yield the name, the fault in words, the chapters and the class of each mutant."""
    for of, option in OPTIONS.items():
        for fault, words, wrong in _faults(option):
            yield (
                f"{of}-{fault}",
                words.format(option.said()),
                option.chapters,
                made(option, wrong, is_kept=fault.startswith("stays")),
            )


vars().update(named(*each) for each in _all())
