"""Mutants of DataParallel that lose a replica's hooks, gradients or exception."""

from collections.abc import Callable, Sequence
from typing import Any

from hooklaw_backends._data_parallel import ThreadParallel
from hooklaw_backends.mutants.base import Hook, Mutant, TensorHooks, once


class ModuleHooksRunOnceForAllReplicas(Mutant):
    """A module hook runs in one replica only."""

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
    """A hook on a parameter runs once for each replica instead of once for the sum."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - part of the verb
        return lambda grad: [hook(grad / 2) for _ in range(2)][-1]


class GradientOfOneReplicaOnly(Mutant):
    """Only the first replica contributes to the gradients of the parameters."""

    class Parallel(ThreadParallel):
        """Detaches the parameters of every replica but the first."""

        def replicate(self, module: Any, device_ids: Sequence[Any]) -> list[Any]:
            first, *others = super().replicate(module, device_ids)
            for replica in others:
                for name, parameter in module.named_parameters():
                    setattr(replica, name, parameter.detach())
            return [first, *others]

    def data_parallel(self, module: Any) -> Callable[..., Any]:
        return self.Parallel(module)


class ExceptionInAReplicaIsLost(Mutant):
    """If a replica raises, its input is returned as its output."""

    class Parallel(ThreadParallel):
        """Returns the inputs of the replicas if one of them raises."""

        def parallel_apply(self, replicas: Sequence[Any], inputs: Sequence[Any], kwargs: Any) -> list[Any]:
            try:
                return super().parallel_apply(replicas, inputs, kwargs)
            except Exception:  # noqa: BLE001 - that is the vice
                return [given[0] for given in inputs]

    def data_parallel(self, module: Any) -> Callable[..., Any]:
        return self.Parallel(module)


class ExceptionChangesItsType(Mutant):
    """An exception in a replica becomes a RuntimeError."""

    class Parallel(ThreadParallel):
        """Turns every exception into a RuntimeError."""

        def parallel_apply(self, replicas: Sequence[Any], inputs: Sequence[Any], kwargs: Any) -> list[Any]:
            try:
                return super().parallel_apply(replicas, inputs, kwargs)
            except Exception as error:
                raise RuntimeError(str(error)) from error

    def data_parallel(self, module: Any) -> Callable[..., Any]:
        return self.Parallel(module)
