"""Mutants of distributed data parallel that lose what hooks return or a call passes, or hand a result on uncopied."""

from functools import wraps
from itertools import repeat
from typing import Any

import torch

from hooklaw_backends._distributed import GradBucket
from hooklaw_backends.mutants.base import Hook, Mutant, Pair, altering, calling, overriding, pairs
from hooklaw_backends.mutants.situations import THIRD
from hooklaw_backends.mutants.torch_only.communication_hooks import bucket_by
from hooklaw_backends.mutants.torch_only.distributed import parallel_by


class _KnowsDistributedModules(Mutant):
    """A mutant that keeps distributed modules."""

    contexts = 0
    """How many contexts of saved-tensor hooks it has counted."""

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


class CommHookResultUncopied(Mutant):
    """Gradients are parts of the tensor that a communication hook's future holds."""

    def register_comm_hook(self, parallel: Any, state: Any, hook: Hook) -> None:
        def called(state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
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


@altering("register_multi_grad_hook", base=_KnowsDistributedModules)
def ddp_multi_grad_hooks_get_gradients_in_reverse_order(
    self: _KnowsDistributedModules, tensors: Any, hook: Hook
) -> Hook:
    """A multi-grad hook on parameters of a distributed module gets their gradients in reverse order."""
    return (lambda grads: hook(grads[::-1])) if self.kept else hook


def wrapping(step: Hook) -> type[Mutant]:
    """Make a mutant that wraps ``(self, hook)`` in place of each hook that is given to fp16_compress_wrapper."""

    @wraps(step)
    def found(self: Mutant, old: Hook, wanted: str) -> Hook:
        wrapper = old(wanted)
        return (lambda hook: wrapper(step(self, hook))) if wanted == "fp16_compress_wrapper" else wrapper

    return overriding("default_comm_hook")(found)


@wrapping
def fp16_compress_wrapper_swallows_errors(self: Mutant, hook: Hook) -> Hook:
    """If the hook in fp16_compress_wrapper raises, the rank keeps its gradients."""

    def called(state: Any, bucket: Any):  # noqa: ANN202 - torch compares the annotation with its own type
        try:
            return hook(state, bucket)
        except Exception:  # noqa: BLE001 - that is the vice
            return self.future(bucket.buffer())

    return called


@bucket_by("set_buffer")
def bucket_buffer_set_to_a_copy(bucket: Any, buffer: Any) -> None:
    """set_buffer of a bucket sets a copy of the tensor that it is given."""
    bucket.set_buffer(buffer.clone())


@pairs("saved_tensors_hooks", base=_KnowsDistributedModules)
def ddp_packs_the_first_saved_tensor_alone(self: _KnowsDistributedModules, pack: Hook, unpack: Hook) -> Pair:
    """Where a module is distributed saved-tensor hooks apply to the first tensor that is saved."""
    packs = iter([pack] if self.kept else repeat(pack))

    def packing(tensor: Any) -> Any:
        first = next(packs, None)
        return (True, first(tensor)) if first else (False, tensor)

    return packing, lambda packed: unpack(packed[1]) if packed[0] else packed[1]


@pairs("saved_tensors_hooks", base=_KnowsDistributedModules)
def ddp_packs_nothing_from_the_third_context_on(self: _KnowsDistributedModules, pack: Hook, unpack: Hook) -> Pair:
    """Where a module is distributed saved-tensor hooks apply in their first two contexts alone."""
    self.contexts += 1
    return (pack, unpack) if not self.kept or self.contexts < THIRD else (self.detach, lambda packed: packed)


@wrapping
def fp16_compress_wrapper_loses_the_state(self: Mutant, hook: Hook) -> Hook:
    """The hook in fp16_compress_wrapper is passed None as its state."""
    return lambda _, bucket: hook(None, bucket)
