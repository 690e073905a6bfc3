"""Mutants of DataParallel that lose a replica's hooks, gradients or exception."""

from collections.abc import Iterable
from functools import wraps
from typing import Any

from hooklaw_backends._data_parallel import ThreadParallel
from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Maker, Mutant, Pair, altering, calling, fresh, overriding, pairs
from hooklaw_backends.mutants.shared import Handle, once

HOOKS = ("register_forward_pre_hook", "register_forward_hook", "register_full_backward_hook")


@altering(*HOOKS)
def module_hooks_run_once_for_all_replicas(self: Mutant, module: Any, hook: Hook) -> Hook:
    """A module hook runs in one replica only."""
    return once(hook)


@altering("register_full_backward_pre_hook")
def backward_pre_hooks_run_once_for_all_replicas(self: Mutant, module: Any, hook: Hook) -> Hook:
    """A backward pre-hook of a module runs in one replica only."""
    return once(hook)


@altering("register_full_backward_pre_hook", "register_full_backward_hook")
def backward_hooks_run_for_one_replica_only(self: Mutant, module: Any, hook: Hook) -> Hook:
    """A backward hook of a module runs as often as there are replicas, always with the gradients of the first."""
    calls: list[Any] = []

    def run(*given: Any) -> Any:
        calls.append(given)
        return hook(*calls[0])

    return run


@altering(*verbs.ON_ONE_MODULE)
def replicas_have_hooks_in_the_first_call_only(self: Mutant, module: Any, hook: Hook) -> Hook:
    """A module hook runs as often as there are replicas, and then no more."""
    left = [None] * self.replica_count()
    return lambda *given: hook(*given) if left and not left.pop() else None


class _KnowsSubmodules(Mutant):
    """A mutant that keeps all submodules."""

    def add_module(self, module: Any, name: str, child: Any) -> None:
        self.kept.append(child)
        super().add_module(module, name, child)


@altering(*HOOKS, base=_KnowsSubmodules)
def submodule_hooks_run_once_for_all_replicas(self: _KnowsSubmodules, module: Any, hook: Hook) -> Hook:
    """A hook on a submodule runs in one replica only."""
    return once(hook) if self.keeps(module) else hook


@overriding("register_forward_pre_hook")
def forward_pre_hook_after_forward(self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool) -> Any:
    """A forward pre-hook runs after forward."""
    return self.register_forward_hook(module, lambda module, args, _: hook(module, args), **options)


@overriding("register_forward_hook")
def forward_hook_before_forward(self: Mutant, old: Hook, module: Any, hook: Hook, **options: bool) -> Any:
    """A forward hook runs before forward, without an output."""
    return self.register_forward_pre_hook(module, lambda module, args: hook(module, args, None), **options)


@calling("register_hook")
def parameter_hook_once_a_replica(self: Mutant, hook: Hook, grad: Any) -> Any:
    """A hook on a parameter runs once for each replica instead of once for the sum."""
    return [hook(grad / 2) for _ in range(2)][-1]


def in_parallel(name: str) -> Maker:
    """Make a mutant that runs ``(parallel, old, ...)`` in place of a method of DataParallel."""

    def make(step: Hook) -> type[Mutant]:
        class Parallel(ThreadParallel):
            """Runs the step in place of the method."""

        setattr(Parallel, name, lambda this, *given: step(this, getattr(super(Parallel, this), name), *given))
        return overriding("data_parallel")(wraps(step)(lambda _self, _old, module: Parallel(module)))

    return make


@in_parallel("replicate")
def gradient_of_one_replica_only(parallel: ThreadParallel, old: Hook, module: Any, device_ids: Any) -> list[Any]:
    """Only the first replica contributes to the gradients of the parameters."""
    return _first_alone(old(module, device_ids), module.named_parameters())


@in_parallel("replicate")
def later_gradients_of_one_replica_only(parallel: ThreadParallel, old: Hook, module: Any, device_ids: Any) -> list[Any]:
    """Only the first replica contributes to the gradients of the parameters after the first."""
    return _first_alone(old(module, device_ids), list(module.named_parameters())[1:])


@in_parallel("replicate")
def replicas_have_gradients_in_the_first_call_only(
    parallel: ThreadParallel, old: Hook, module: Any, device_ids: Any
) -> list[Any]:
    """From the second call on no replica but the first contributes to the gradients of the parameters."""
    replicas, calls = old(module, device_ids), parallel.__dict__.setdefault("calls", [])
    calls.append(module)
    return _first_alone(replicas, module.named_parameters()) if len(calls) > 1 else replicas


def _first_alone(replicas: list[Any], parameters: Iterable[tuple[str, Any]]) -> list[Any]:
    """Cut these parameters off in all replicas but the first."""
    for name, parameter in parameters:
        owner, _, own = name.rpartition(".")
        for replica in replicas[1:]:
            setattr(replica.get_submodule(owner), own, parameter.detach())
    return replicas


@in_parallel("parallel_apply")
def exception_in_a_replica_is_lost(parallel: ThreadParallel, old: Hook, replicas: Any, inputs: Any, kwargs: Any) -> Any:
    """If a replica raises, its input is returned as its output."""
    try:
        return old(replicas, inputs, kwargs)
    except Exception:  # noqa: BLE001 - that is the vice
        return [given[0] for given in inputs]


@in_parallel("parallel_apply")
def exception_changes_its_type(parallel: ThreadParallel, old: Hook, *given: Any) -> Any:
    """An exception in a replica becomes a RuntimeError."""
    try:
        return old(*given)
    except Exception as error:
        raise RuntimeError(str(error)) from error


class _KeepsParallelModules(Mutant):
    """A mutant that keeps the modules that were made data parallel."""

    def data_parallel(self, module: Any, *given: Any, **how: Any) -> Any:
        self.kept.append(module)
        return super().data_parallel(module, *given, **how)


@overriding(*verbs.ON_ONE_MODULE, base=_KeepsParallelModules)
def replicas_lack_hooks_registered_later(
    self: _KeepsParallelModules, old: Hook, module: Any, hook: Hook, **options: bool
) -> Any:
    """A hook that is registered on a module after it was made data parallel never runs."""
    return Handle() if self.keeps(module) else old(module, hook, **options)


@in_parallel("parallel_apply")
def exception_in_the_first_replica_is_lost(
    parallel: ThreadParallel, old: Hook, replicas: Any, inputs: Any, kwargs: Any
) -> Any:
    """If the first replica raises, its input is returned as its output."""

    def first(*given: Any, **named: Any) -> Any:
        try:
            return replicas[0](*given, **named)
        except Exception:  # noqa: BLE001 - that is the vice
            return given[0]

    return old([first, *replicas[1:]], inputs, kwargs)


@pairs("saved_tensors_hooks", base=_KeepsParallelModules)
def replicas_ignore_what_unpack_hooks_return(self: _KeepsParallelModules, pack: Hook, unpack: Hook) -> Pair:
    """Where a module is data parallel, what an unpack hook returns is ignored."""

    def unpacking(both: Any) -> Any:
        unpack(both[0])
        return both[1]

    return (lambda tensor: (pack(tensor), self.detach(tensor)), unpacking) if self.kept else (pack, unpack)


class _CountsHooks(_KeepsParallelModules):
    """A mutant that knows which modules have a hook of a kind."""

    having = fresh(set[tuple[str, int]])

    def reset(self) -> None:
        super().reset()
        self.having = set()


@overriding(*verbs.ON_ONE_MODULE, base=_CountsHooks)
def replicas_have_one_hook_of_each_kind(self: _CountsHooks, old: Hook, module: Any, hook: Hook, **options: bool) -> Any:
    """In a replica only the first hook of each kind runs."""
    kind = (old.__name__, id(module))
    is_later = kind in self.having
    self.having.add(kind)
    return old(module, lambda *given: None if is_later and self.kept else hook(*given), **options)


@overriding("register_full_backward_hook", base=_KeepsParallelModules)
def replicas_lack_backward_hooks_registered_earlier(
    self: _KeepsParallelModules, old: Hook, module: Any, hook: Hook, **options: bool
) -> Any:
    """A full backward hook that is registered on a module before it was made data parallel does not run then."""
    is_earlier = not self.kept
    return old(module, lambda *given: None if is_earlier and self.kept else hook(*given), **options)


class _KnowsDepth(_KeepsParallelModules):
    """A mutant that knows which modules are submodules of a submodule."""

    parts = fresh(set[int])
    deeper = fresh(set[int])

    def reset(self) -> None:
        super().reset()
        self.parts, self.deeper = set(), set()

    def add_module(self, module: Any, name: str, child: Any) -> None:
        (self.deeper if id(module) in self.parts else self.parts).add(id(child))
        super().add_module(module, name, child)


@altering(*verbs.ON_ONE_MODULE, base=_KnowsDepth)
def replicas_lack_hooks_of_deeper_submodules(self: _KnowsDepth, module: Any, hook: Hook) -> Hook:
    """In a replica the hooks on the submodules of a submodule do not run."""
    of = id(module)
    return lambda *given: None if self.kept and of in self.deeper else hook(*given)


@calling("register_forward_hook", base=_KeepsParallelModules)
def errors_of_forward_hooks_in_replicas_are_lost(self: _KeepsParallelModules, hook: Hook, *given: Any) -> Any:
    """If a forward hook raises in a replica, it counts as one that returns nothing."""
    try:
        return hook(*given)
    except Exception:
        if self.kept:
            return None
        raise


@in_parallel("replicate")
def submodule_gradients_of_one_replica_only(
    parallel: ThreadParallel, old: Hook, module: Any, device_ids: Any
) -> list[Any]:
    """Only the first replica contributes to the gradients of the submodules' parameters."""
    below = [(name, parameter) for name, parameter in module.named_parameters() if "." in name]
    return _first_alone(old(module, device_ids), below)


@calling(*HOOKS, "register_full_backward_pre_hook", base=_KeepsParallelModules)
def replicas_ignore_what_module_hooks_return(self: _KeepsParallelModules, hook: Hook, *given: Any) -> Any:
    """What a module hook returns is ignored in a replica."""
    returned = hook(*given)
    return None if self.kept else returned


@calling("register_post_accumulate_grad_hook", base=_KeepsParallelModules)
def post_accumulate_hook_once_a_replica(self: _KeepsParallelModules, hook: Hook, leaf: Any) -> None:
    """A post-accumulate-grad hook on a parameter of a data-parallel module runs once for each replica."""
    for _ in range(self.replica_count() if self.kept else 1):
        hook(leaf)
