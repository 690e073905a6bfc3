"""Mutants of distributed data parallel that lose what hooks return or a call passes, or hand a result on uncopied."""

from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, altering, calling
from hooklaw_backends.mutants.torch_only.distributed import parallel_by


class _KnowsDistributedModules(Mutant):
    """A mutant that keeps distributed modules."""

    def distributed_data_parallel(self, module: Any, **options: Any) -> Any:
        self.kept.append(module)
        return super().distributed_data_parallel(module, **options)

    def without_result(self, hook: Hook, module: Any, *given: Any) -> Any:
        """Call a hook of a module, and return None in place of its result if the module is distributed."""
        result = hook(module, *given)
        return None if self.keeps(module) else result


@calling("register_forward_pre_hook", base=_KnowsDistributedModules)
def ddp_ignores_what_forward_pre_hooks_return(self: _KnowsDistributedModules, hook: Hook, *given: Any) -> Any:
    """What a forward pre-hook of a distributed module returns is lost."""
    return self.without_result(hook, *given)


@calling("register_forward_hook", base=_KnowsDistributedModules)
def ddp_ignores_what_forward_hooks_return(self: _KnowsDistributedModules, hook: Hook, *given: Any) -> Any:
    """What a forward hook of a distributed module returns is lost."""
    return self.without_result(hook, *given)


@calling("register_full_backward_pre_hook", "register_full_backward_hook", base=_KnowsDistributedModules)
def ddp_ignores_what_backward_hooks_return(self: _KnowsDistributedModules, hook: Hook, *given: Any) -> Any:
    """What a backward hook or pre-hook of a distributed module returns is lost."""
    return self.without_result(hook, *given)


@parallel_by("forward")
def ddp_drops_keyword_arguments(parallel: Any, old: Hook, *inputs: Any, **named: Any) -> Any:
    """The keyword arguments with which a distributed module is called do not reach its forward."""
    return old(*inputs)


@altering("register_hook", base=_KnowsDistributedModules)
def ddp_ignores_what_parameter_hooks_return_after_the_first_pass(
    self: _KnowsDistributedModules, tensor: Any, hook: Hook
) -> Hook:
    """What a hook on a parameter returns is lost from its second call on."""
    results: list[Any] = []

    def first(grad: Any) -> Any:
        results.append(hook(grad))
        return None if results[1:] and self.kept else results[-1]

    return first


class CommHookResultUncopied(Mutant):
    """Gradients are parts of the tensor that a communication hook's future holds."""

    def register_comm_hook(self, parallel: Any, state: Any, hook: Hook) -> None:
        def called(state: Any, bucket: Any):  # noqa: ANN202 - torch compares the annotation with its own type
            future = hook(state, bucket)
            self.kept.append((bucket.parameters(), future))
            return future

        super().register_comm_hook(parallel, state, called)

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        super().backward(root, gradient, **how)
        for parameters, future in self.kept:
            sizes = [each.numel() for each in parameters]
            for each, share in zip(parameters, future.value().split(sizes), strict=True):
                each.grad = share.view_as(each)
        self.kept.clear()
