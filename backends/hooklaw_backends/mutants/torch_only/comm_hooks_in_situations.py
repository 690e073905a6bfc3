"""Mutants of communication hooks, of their buckets and of the framework's own: each fault in each situation.

No rule need name them: they are tried on the rules whose ids begin with the row's `chapters`.
"""

from collections.abc import Callable, Iterator
from copy import copy
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import distributed

from hooklaw_backends._distributed import GradBucket
from hooklaw_backends.mutants.base import Hook, Mutant, overriding
from hooklaw_backends.mutants.in_situations import named
from hooklaw_backends.mutants.torch_only.communication_hooks import Bucket
from hooklaw_backends.mutants.torch_only.wrappers import (
    AFTER_A_FAILURE,
    ALWAYS,
    EACH_RANK,
    EARLIER,
    LATER,
    KnowingWrappers,
    Row,
    Situation,
    known,
    row,
)


class Call(NamedTuple):
    """A call of a communication hook."""

    hook: Hook
    state: Any
    bucket: Any

    def __call__(self) -> Any:
        return self.hook(self.state, self.bucket)

    def changed(self, step: Callable[[Any], Any]) -> Any:
        """Return a future of what the hook's future holds, changed."""
        return self().then(lambda done: step(done.value()))


Wrong = Callable[[Call], Any]
"""Calls a communication hook in a wrong way."""


def _completed(value: Any) -> Any:
    future = torch.futures.Future()
    future.set_result(value)
    return future


def _ignored(call: Call) -> Any:
    own = call.bucket.buffer().clone()
    return call.changed(lambda _: own)


def _divided(value: Any) -> Any:
    return value / distributed.get_world_size()


def _given_divided(call: Call) -> Any:
    call.bucket.set_buffer(_divided(call.bucket.buffer()))
    return call()


def _reduced_again(call: Call) -> Any:
    value = _divided(call().value())
    distributed.all_reduce(value)
    return _completed(value)


def _not_awaited(call: Call) -> Any:
    call()
    return _completed(call.bucket.buffer())


def _twice(call: Call) -> Any:
    call()
    return call()


def _swallowed(call: Call) -> Any:
    try:
        return call()
    except Exception:  # noqa: BLE001 - the fault
        return _completed(call.bucket.buffer())


def _checked_nowhere(call: Call) -> Any:
    found = call()
    is_right = isinstance(found, torch.futures.Future) and isinstance(found.wait(), torch.Tensor)
    return found if is_right else _completed(call.bucket.buffer())


class Fault(NamedTuple):
    """A fault of communication hooks, and where it is tried."""

    words: str
    wrong: Wrong
    chapters: tuple[str, ...]
    situations: tuple[Situation, ...] = (LATER,)
    in_later_buckets: bool = False


SEVERAL = "ddp.buckets.several"
FAULTS = {
    "lost": Fault(
        "is not called",
        lambda call: _completed(call.bucket.buffer()),
        ("ddp.comm-hook.called", "ddp.comm-hook.exception"),
        (LATER, EARLIER, *EACH_RANK, AFTER_A_FAILURE),
    ),
    "ignored": Fault("is called, and the gradients stay", _ignored, ("ddp.comm-hook.called", "ddp.comm-hook.two")),
    "divided": Fault(
        "has its result divided",
        lambda call: call.changed(_divided),
        ("ddp.comm-hook.no-division", "ddp.comm-hook.without"),
    ),
    "given-divided": Fault("gets the gradients divided", _given_divided, ("ddp.comm-hook.not-predivided",)),
    "reduced-again": Fault("has its result reduced again", _reduced_again, ("ddp.comm-hook.without",)),
    "not-awaited": Fault("has its result not awaited", _not_awaited, ("ddp.comm-hook.asynchronous",)),
    "twice": Fault(
        "is called twice",
        _twice,
        ("ddp.comm-hook.called", "ddp.comm-hook.bucket.index"),
        (ALWAYS, LATER),
        in_later_buckets=True,
    ),
    "without-state": Fault(
        "gets None as its state", lambda call: call.hook(None, call.bucket), ("ddp.comm-hook.state",), (LATER, EARLIER)
    ),
    "with-another-state": Fault(
        "gets a copy of its state",
        lambda call: call.hook(copy(call.state), call.bucket),
        ("ddp.comm-hook.state", SEVERAL),
        in_later_buckets=True,
    ),
    "swallowed": Fault(
        "has its error ignored", _swallowed, ("ddp.comm-hook.exception",), (LATER, *EACH_RANK, AFTER_A_FAILURE)
    ),
    "result-unchecked": Fault("may return anything", _checked_nowhere, ("ddp.comm-hook.return",)),
}


def made(wrong: Wrong, situation: Situation, *, first: int = 0) -> type[Mutant]:
    """Return a mutant that calls communication hooks in a wrong way, from one of the buckets of a pass on."""

    def register(self: Any, old: Hook, parallel: Any, state: Any, hook: Hook) -> None:
        its = known(parallel)

        @wraps(hook)  # or torch could not check its parameters
        def called(state: Any, bucket: Any) -> Any:
            call = Call(hook, state, bucket)
            try:
                is_wrong = its and situation.holds(self, its) and bucket.index() >= first
                return wrong(call) if is_wrong else call()
            except BaseException:
                self.failures += 1
                raise

        old(parallel, state, called if its else hook)

    return overriding("register_comm_hook", base=KnowingWrappers)(register)


def _of_hooks() -> Iterator[Row]:
    for name, fault in FAULTS.items():
        for situation in fault.situations:
            said = f"a communication hook {fault.words}"
            yield row(f"comm-hook-{name}", said, fault.chapters, situation, made(fault.wrong, situation))
        if fault.in_later_buckets:
            said = f"a communication hook {fault.words} for each bucket but the first"
            mutant = made(fault.wrong, ALWAYS, first=1)
            yield row(f"comm-hook-{name}-for-later-buckets", said, fault.chapters, ALWAYS, mutant)


def _bucket(name: str, step: Hook) -> Wrong:
    """Return what gives a hook a bucket with a wrong method, which computes ``(bucket, *arguments)``."""

    def wrong(call: Call) -> Any:
        method = {name: lambda *given: step(call.bucket, *given)}
        return call.hook(call.state, Bucket(call.bucket, **method))

    return wrong


BUCKETS = {
    "gradients-reversed": (
        "the gradients of a bucket are reversed",
        "gradients",
        lambda bucket: bucket.gradients()[::-1],
    ),
    "parameters-reversed": (
        "the parameters of a bucket are reversed",
        "parameters",
        lambda bucket: bucket.parameters()[::-1],
    ),
    "index-lost": ("the index of a bucket is 0", "index", lambda _: 0),
    "always-last": ("is_last of a bucket is True", "is_last", lambda _: True),
    "buffer-kept": ("set_buffer of a bucket does nothing", "set_buffer", lambda *_: None),
    "buffer-copied": (
        "set_buffer of a bucket sets a copy",
        "set_buffer",
        lambda bucket, value: bucket.set_buffer(value.clone()),
    ),
}
"""What is wrong with a bucket: in words, the method, and what it does instead."""


def _of_buckets() -> Iterator[Row]:
    for fault, (words, method, step) in BUCKETS.items():
        mutant = made(_bucket(method, step), LATER)
        yield row(f"bucket-{fault}", words, ("ddp.comm-hook.bucket",), LATER, mutant)


DEFAULT = {
    "allreduce_hook": "ddp.default-comm-hook.allreduce",
    "fp16_compress_hook": "ddp.default-comm-hook.fp16-compress",
    "fp16_compress_wrapper": "ddp.default-comm-hook.fp16-compress-wrapper",
    "noop_hook": "ddp.default-comm-hook.noop",
}


class _KnowingDefaultHooks(KnowingWrappers):
    """A mutant that knows the hooks of the framework."""

    watched = frozenset({"default_comm_hook"})
    wanted = ""
    """The name of those that it keeps."""

    def default_comm_hook(self, name: str) -> Any:
        hook = super().default_comm_hook(name)
        if name != self.wanted:
            return hook
        return self.noted(hook) if name.endswith("_hook") else lambda inner: self.noted(hook(inner))

    def noted(self, hook: Hook) -> Hook:
        """Keep a hook."""
        self.kept.append(hook)
        return hook


def _doubled(name: str, situation: Situation, *, first: int = 0) -> type[Mutant]:
    """Return a mutant in which a hook of the framework leaves twice the gradients that it should, from a place on."""

    def register(self: Any, old: Hook, parallel: Any, state: Any, hook: Hook) -> None:
        def called(state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
            call, its = Call(hook, state, bucket), known(parallel)
            start = sum(each.numel() for each in bucket.parameters()[:first])
            is_wrong = its and situation.holds(self, its)
            return call.changed(lambda value: _twice_from(value, start)) if is_wrong else call()

        old(parallel, state, called if self.keeps(hook) else hook)

    mutant = overriding("register_comm_hook", base=_KnowingDefaultHooks)(register)
    mutant.wanted = name  # type: ignore[attr-defined]
    return mutant


def _twice_from(value: torch.Tensor, start: int) -> torch.Tensor:
    return torch.cat([value[:start], value[start:] * 2])


def _of_default_hooks() -> Iterator[Row]:
    for name, chapter in DEFAULT.items():
        said = f"what {name} leaves is doubled"
        of = f"{name.replace('_', '-')}-doubled"
        yield row(of, said, (chapter,), LATER, _doubled(name, LATER))
        yield row(
            f"{of}-but-the-first",
            f"{said}, but for the first gradient",
            (chapter,),
            ALWAYS,
            _doubled(name, ALWAYS, first=1),
        )


vars().update(named(*each) for make in (_of_hooks, _of_buckets, _of_default_hooks) for each in make())
