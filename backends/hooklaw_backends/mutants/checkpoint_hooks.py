"""Mutants that drop, double or change hooks that meet a checkpoint."""

from contextlib import AbstractContextManager
from typing import Any

from hooklaw_backends.mutants.base import Handle, Hook, ModuleHooks, Mutant, Pair, Pairs, TensorHooks, without_result


class _KnowsItsCheckpoints(Mutant):
    """A mutant that knows whether a checkpoint was made, and whether its function runs, for the first time or again."""

    made = False
    run_nr = 0

    def reset(self) -> None:
        super().reset()
        self.made, self.run_nr = False, 0

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        self.made = True
        runs: list[int] = []

        def counted(*given: Any, **keywords: Any) -> Any:
            runs.append(0)
            outer, self.run_nr = self.run_nr, len(runs)
            try:
                return fn(*given, **keywords)
            finally:
                self.run_nr = outer

        return super().checkpoint(counted, *inputs, **how)


class ForwardHooksSilentInRecomputation(_KnowsItsCheckpoints, ModuleHooks):
    """Forward hooks do not run when a checkpoint is recomputed."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        if kind != "forward":
            return hook
        return lambda *given: hook(*given) if self.run_nr <= 1 else None


class BackwardHooksSilentInACheckpoint(_KnowsItsCheckpoints, ModuleHooks):
    """Full backward hooks do not run if a checkpoint was made."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        if kind != "full_backward":
            return hook
        return lambda *given: None if self.made else hook(*given)


class BackwardHooksDoubledInACheckpoint(_KnowsItsCheckpoints, ModuleHooks):
    """Full backward hooks run twice if a checkpoint was made."""

    def altered(self, kind: str, hook: Hook) -> Hook:
        if kind != "full_backward":
            return hook
        return lambda *given: (hook(*given), hook(*given) if self.made else None)[0]


class TensorHooksDroppedInACheckpoint(_KnowsItsCheckpoints):
    """A tensor hook that is registered while the function of a checkpoint runs never runs."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        return Handle() if self.run_nr else super().register_hook(tensor, hook)


class TensorHooksInACheckpointReturnNothing(_KnowsItsCheckpoints):
    """What a tensor hook returns is ignored if it was registered while the function of a checkpoint ran."""

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        return super().register_hook(tensor, without_result(hook) if self.run_nr else hook)


class RetainGradIgnoredInACheckpoint(_KnowsItsCheckpoints):
    """retain_grad has no effect while the function of a checkpoint runs."""

    def retain_grad(self, tensor: Any) -> None:
        if not self.run_nr:
            super().retain_grad(tensor)


class NodeHooksDroppedInACheckpoint(_KnowsItsCheckpoints):
    """A Node hook that is registered while the function of a checkpoint runs never runs."""

    def node_register_prehook(self, node: Any, hook: Hook) -> Any:
        return Handle() if self.run_nr else super().node_register_prehook(node, hook)

    def node_register_hook(self, node: Any, hook: Hook) -> Any:
        return Handle() if self.run_nr else super().node_register_hook(node, hook)


class InputHooksOfACheckpointRunTwice(_KnowsItsCheckpoints, TensorHooks):
    """Tensor hooks run twice if a checkpoint was made."""

    def altered(self, tensor: Any, hook: Hook) -> Hook:  # noqa: ARG002 - the same for all
        return lambda grad: (hook(grad), hook(grad) if self.made else None)[0]


class CheckpointStarvesTheHooksOfItsOutput(Mutant):
    """A tensor hook on the output of a checkpoint never runs."""

    def __init__(self) -> None:
        super().__init__()
        self._outputs: list[Any] = []

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        self._outputs[:] = [super().checkpoint(fn, *inputs, **how)]
        return self._outputs[0]

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        starved = any(tensor is output for output in self._outputs)
        return Handle() if starved else super().register_hook(tensor, hook)


class PairsInACheckpointChangeWhatTheyKeep(_KnowsItsCheckpoints):
    """Saved-tensor hooks that are entered while the function of a checkpoint runs give back twice the tensor."""

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> AbstractContextManager[Any]:
        if not self.run_nr:
            return super().saved_tensors_hooks(pack, unpack)
        return super().saved_tensors_hooks(pack, lambda packed: unpack(packed) * 2)


class _KnowsItsUnpacking(Pairs):
    """A mutant that knows whether an unpack hook is running."""

    unpacking = False

    def altered(self, pack: Hook, unpack: Hook) -> Pair:
        def known(packed: Any) -> Any:
            outer, self.unpacking = self.unpacking, True
            try:
                return unpack(packed)
            finally:
                self.unpacking = outer

        return pack, known


class BackwardInsideUnpackDoesNothing(_KnowsItsUnpacking):
    """A backward inside an unpack hook does nothing."""

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        if not self.unpacking:
            super().backward(root, gradient, **how)


class UnpackCannotRecord(_KnowsItsUnpacking):
    """enable_grad has no effect inside an unpack hook."""

    def enable_grad(self) -> AbstractContextManager[Any]:
        return self.no_grad() if self.unpacking else super().enable_grad()


class HooksRegisteredInsideUnpackWaitForTheNextPass(_KnowsItsUnpacking):
    """A hook that an unpack hook registers does not run before the backward has ended."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[Any] = []

    def backward(self, root: Any, gradient: Any = None, **how: Any) -> None:
        super().backward(root, gradient, **how)
        while self._waiting:
            register, place, hook = self._waiting.pop(0)
            register(place, hook)

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        return self._now_or_later(super().register_hook, tensor, hook)

    def register_post_accumulate_grad_hook(self, tensor: Any, hook: Hook) -> Any:
        return self._now_or_later(super().register_post_accumulate_grad_hook, tensor, hook)

    def node_register_prehook(self, node: Any, hook: Hook) -> Any:
        return self._now_or_later(super().node_register_prehook, node, hook)

    def node_register_hook(self, node: Any, hook: Hook) -> Any:
        return self._now_or_later(super().node_register_hook, node, hook)

    def _now_or_later(self, register: Hook, place: Any, hook: Hook) -> Any:
        if not self.unpacking:
            return register(place, hook)
        self._waiting.append((register, place, hook))
        return Handle()


class RetainGradInsideUnpackIgnored(_KnowsItsUnpacking):
    """retain_grad has no effect inside an unpack hook."""

    def retain_grad(self, tensor: Any) -> None:
        if not self.unpacking:
            super().retain_grad(tensor)
