"""Mutants of hooks on distributed modules and their parameters, and of options: each fault in each situation.

No rule need name them: they are tried on the rules whose ids begin with the row's `chapters`. That an error of such a
hook reaches the caller is asked of modules that are not distributed.
"""

from collections.abc import Iterator
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, overriding
from hooklaw_backends.mutants.faults import FAULTS, Call, Wrong
from hooklaw_backends.mutants.in_situations import named, owner_of
from hooklaw_backends.mutants.kinds import KINDS, Kind
from hooklaw_backends.mutants.options_of_verbs import FAULTS as OF_OPTIONS
from hooklaw_backends.mutants.options_of_verbs import NOT_GIVEN, Option
from hooklaw_backends.mutants.options_of_verbs import made as with_option
from hooklaw_backends.mutants.torch_only.wrappers import LATER, KnowingWrappers, Row, Situation, row

HOOKS = {
    "tensor-hook": ("ddp.tensor-hooks",),
    "post-accumulate-hook": ("ddp.post-acc",),
    "multi-grad-hook": ("ddp.multi-grad",),
    "forward-pre-hook": ("ddp.module-hooks.forward",),
    "forward-hook": ("ddp.module-hooks.forward",),
    "backward-pre-hook": ("ddp.module-hooks.backward",),
    "backward-hook": ("ddp.module-hooks.backward",),
}
TRIED = ("lost", "ignored")
"""The faults of a hook that are tried."""


def made(kind: Kind, situation: Situation, wrong: Wrong) -> type[Mutant]:
    """Return a mutant with a fault of one kind of hook, if it belongs to a distributed module."""

    def register(self: Any, old: Hook, *given: Any, **options: Any) -> Any:
        *where, hook = given
        owner = id(owner_of(where))

        def run(*arguments: Any, **names: Any) -> Any:
            its, call = self.wrapper_of(owner), Call(hook, arguments, names, kind)
            return wrong(self, call) if its and situation.holds(self, its) else call()

        run.__dict__.update(getattr(hook, "__dict__", {}))  # the mark of an unserializable hook, say
        return old(*where, run, **options)

    return overriding(*kind.verbs, base=KnowingWrappers)(register)


def _of_hooks() -> Iterator[Row]:
    for of, chapters in HOOKS.items():
        kind = KINDS[of]
        for fault in TRIED if kind.has_result else TRIED[:1]:
            words, wrong = FAULTS[fault]
            said = words.format(f"{kind.words} under distributed data parallel")
            yield row(f"ddp-{of}-{fault}", said, chapters, LATER, made(kind, LATER, wrong))


WRAP = ("distributed_data_parallel",)
OPTIONS = {
    "ddp-find-unused-parameters": Option("find_unused_parameters", WRAP, ("ddp.find-unused", "ddp.unused")),
    "ddp-static-graph": Option(
        "static_graph",
        WRAP,
        ("ddp.static-graph",),
        without=("stays",),
    ),
    "ddp-init-sync": Option("init_sync", WRAP, ("ddp.init-sync",), default=True, other=False),
    "ddp-forward-sync-buffers": Option(
        "forward_sync_buffers", WRAP, ("ddp.buffers-broadcast",), default=True, other=False
    ),
    "ddp-bucket-cap-mb": Option("bucket_cap_mb", WRAP, ("ddp.buckets.several",), default=None, other=NOT_GIVEN),
    "ddp-gradient-as-bucket-view": Option("gradient_as_bucket_view", WRAP, ("ddp.gradient-as-bucket-view.shared",)),
    "join-enable": Option("enable", ("join",), ("ddp.join.disabled",), default=True, other=False),
    "join-divide-by-initial-world-size": Option(
        "divide_by_initial_world_size", ("join",), ("ddp.join.divide",), default=True, other=False
    ),
    "join-throw-on-early-termination": Option("throw_on_early_termination", ("join",), ("ddp.join.throw",)),
}
"""The options. Hand-written mutants ignore them or set them always.

No rule says what is an error without static_graph, so it may stay set.
"""


def _of_options() -> Iterator[Row]:
    for of, option in OPTIONS.items():
        for fault in (each for each in ("ignored-later", "stays") if each not in option.without):
            words, wrong = OF_OPTIONS[fault]
            mutant = with_option(option, wrong)
            mutant.__module__ = __name__
            yield f"{of}-{fault}", words.format(option.said()), option.chapters, mutant


vars().update(named(*each) for make in (_of_hooks, _of_options) for each in make())
