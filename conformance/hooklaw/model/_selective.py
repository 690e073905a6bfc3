"""Selective checkpoints: a checkpoint that saves what chosen operations return, and recomputes only the others."""

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import SimpleNamespace

from hooklaw.model import ops
from hooklaw.model.errors import CheckpointPolicyError, CheckpointSelectiveError
from hooklaw.model.flags import on
from hooklaw.model.modes import watching
from hooklaw.model.strided import Strided

Policy = Callable[..., str]
SAVED = ("SAVE", "CPU_OFFLOAD")
"""How the policies end under which an operation is not run again; every tensor is on the CPU already."""
IGNORED = "offloaded-operations-run-again"


def create_selective_checkpoint_contexts(
    policy: Policy | Sequence[str], *, allow_cache_entry_mutation: bool = False
) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Return the contexts in which a checkpoint's function runs first, and again."""
    cache = _Cache(policy if callable(policy) else _saves(policy), may_change=allow_cache_entry_mutation)
    return cache.filled(), _EveryTime(cache.used)


def _saves(names: Sequence[str]) -> Policy:
    for name in names:
        if not hasattr(ops, name):
            raise CheckpointPolicyError(f"{name!r} is not an operation")
    return lambda _, operation: "MUST_SAVE" if operation in names else "PREFER_RECOMPUTE"


class _EveryTime(AbstractContextManager[None]):
    """A context that can be entered again: it makes a new one each time."""

    def __init__(self, make: Callable[[], AbstractContextManager[None]]) -> None:
        self._make, self._stack = make, ExitStack()

    def __enter__(self) -> None:
        self._stack.enter_context(self._make())

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class _Cache:
    """What the operations of one checkpoint returned, by their numbers, with the versions of the data."""

    def __init__(self, policy: Policy, *, may_change: bool) -> None:
        self._policy, self._may_change = policy, may_change
        self._saved: dict[int, tuple[Strided, int]] = {}
        self._is_used = False

    @contextmanager
    def filled(self) -> Generator[None]:
        """Save what the policy chooses."""
        count = 0

        def save(name: str, data: Strided) -> Strided:
            nonlocal count
            policy = self._policy(SimpleNamespace(is_recompute=False), name)
            if policy.endswith(SAVED[:1] if on(IGNORED) else SAVED):
                self._saved[count] = data, data.storage.version
            count += 1
            return data

        with watching(save):
            yield

    @contextmanager
    def used(self) -> Generator[None]:
        """Use what was saved; CheckpointSelectiveError if it was changed, or used before."""
        count = 0
        if self._is_used:
            raise CheckpointSelectiveError("a selective checkpoint is recomputed once only: backward ran before")
        self._is_used = True

        def use(_: str, data: Strided) -> Strided:
            nonlocal count
            data, version = self._saved.pop(count, (data, data.storage.version))
            count += 1
            if data.storage.version != version and not self._may_change:
                raise CheckpointSelectiveError("what a selective checkpoint had saved was changed in place")
            return data

        with watching(use):
            yield
