"""Mutants that lose a replica's hooks, its gradient or its exception."""

from collections.abc import Callable, Sequence
from typing import Any

from hooklaw_backends._data_parallel import ThreadParallel
from hooklaw_backends.mutants.base import Hook, Mutant, TensorHooks


def once(hook: Hook) -> Hook:
    """Return a hook that is called the first time only."""
    fired: list[bool] = []
    return lambda *arguments: None if fired else (fired.append(True), hook(*arguments))[1]


class ModuleHooksRunOnceForAllReplicas(Mutant):
    """A hook on a module runs in one replica only."""

    def register_forward_pre_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        return super().register_forward_pre_hook(module, once(hook), **options)

    def register_forward_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        return super().register_forward_hook(module, once(hook), **options)

    def register_full_backward_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        return super().register_full_backward_hook(module, once(hook), **options)


class ForwardPreHookAfterForward(Mutant):
    """A forward pre-hook runs after forward."""

    def register_forward_pre_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        return super().register_forward_hook(module, lambda module, args, _: hook(module, args), **options)


class ForwardHookBeforeForward(Mutant):
    """A forward hook runs before forward, without an output."""

    def register_forward_hook(self, module: Any, hook: Hook, **options: bool) -> Any:
        return super().register_forward_pre_hook(module, lambda module, args: hook(module, args, None), **options)


class ParameterHookOnceAReplica(TensorHooks):
    """A hook on a parameter runs for each replica, with that replica's gradient."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return lambda grad: [hook(grad / 2) for _ in range(2)][-1]


class GradientOfOneReplicaOnly(Mutant):
    """The parameters of every replica but the first are cut off from the module's."""

    class Parallel(ThreadParallel):
        """Cuts them off."""

        def replicate(self, module: Any, device_ids: Sequence[Any]) -> list[Any]:
            first, *others = super().replicate(module, device_ids)
            for replica in others:
                for name, parameter in module.named_parameters():
                    setattr(replica, name, parameter.detach())
            return [first, *others]

    def data_parallel(self, module: Any) -> Callable[..., Any]:
        return self.Parallel(module)


class ExceptionInAReplicaIsLost(Mutant):
    """Where a replica fails its input is returned for its output."""

    class Parallel(ThreadParallel):
        """Returns inputs instead."""

        def parallel_apply(self, replicas: Sequence[Any], inputs: Sequence[Any], kwargs: Any) -> list[Any]:
            try:
                return super().parallel_apply(replicas, inputs, kwargs)
            except Exception:  # noqa: BLE001 - that is the vice
                return [one[0] for one in inputs]

    def data_parallel(self, module: Any) -> Callable[..., Any]:
        return self.Parallel(module)


class ExceptionChangesItsType(Mutant):
    """An exception in a replica arrives as a RuntimeError."""

    class Parallel(ThreadParallel):
        """Changes the type."""

        def parallel_apply(self, replicas: Sequence[Any], inputs: Sequence[Any], kwargs: Any) -> list[Any]:
            try:
                return super().parallel_apply(replicas, inputs, kwargs)
            except Exception as error:
                raise RuntimeError(str(error)) from error

    def data_parallel(self, module: Any) -> Callable[..., Any]:
        return self.Parallel(module)
