"""Mutants whose handles do not work."""

import weakref
from typing import Any

from hooklaw.backend.protocol import Capability
from hooklaw_backends.mutants import verbs
from hooklaw_backends.mutants.base import Hook, Mutant, fresh, overriding
from hooklaw_backends.mutants.shared import Handle, PutsOff


@overriding("register_hook")
def handle_of_a_non_leaf_removes_the_oldest_hook(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """The remove of a handle on a non-leaf removes the hook that was registered first."""
    handle = old(tensor, hook)
    hooks = self.hooks_of(tensor)
    return handle if self.is_leaf(tensor) else Handle(lambda: hooks.pop(next(iter(hooks)), None))


@overriding("register_hook")
def remove_looks_for_an_equal_hook(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """Each call of a handle's remove removes the first hook of the tensor that is the same function."""
    old(tensor, hook)
    hooks = self.hooks_of(tensor)

    def remove() -> None:
        for same in [handle_id for handle_id, other in hooks.items() if other == hook][:1]:
            del hooks[same]

    return Handle(remove)


@overriding("register_hook")
def second_remove_raises(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """Calling a handle's remove a second time is an error."""
    return _removed_once(old, tensor, hook)


def _removed_once(old: Hook, tensor: Any, hook: Hook) -> Handle:
    """Register a hook; to remove it twice is an error."""
    handles = [old(tensor, hook)]

    def remove() -> None:
        if not handles:
            raise RuntimeError("the hook was removed before")
        handles.pop().remove()

    return Handle(remove)


@overriding("register_hook")
def second_remove_on_a_non_leaf_raises(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """Calling a handle's remove on a non-leaf a second time is an error."""
    return old(tensor, hook) if self.is_leaf(tensor) else _removed_once(old, tensor, hook)


@overriding("register_hook")
def hooks_of_non_leaves_cannot_remove_themselves(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A handle's remove does nothing while its own hook runs on a non-leaf."""
    if self.is_leaf(tensor):
        return old(tensor, hook)
    running: list[bool] = []

    def run(grad: Any) -> Any:
        running.append(True)
        try:
            return hook(grad)
        finally:
            running.clear()

    run.__dict__.update(getattr(hook, "__dict__", {}))  # the mark of an unserializable hook, say
    handle = old(tensor, run)
    return Handle(lambda: None if running else handle.remove())


@overriding("register_hook")
def handle_ids_reused(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A new hook gets the id of a removed hook."""
    return _with_the_lowest_id(self, old, tensor, hook)


@overriding("register_hook")
def handle_ids_of_non_leaves_reused(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A new hook of a non-leaf gets the id of a removed hook."""
    return old(tensor, hook) if self.is_leaf(tensor) else _with_the_lowest_id(self, old, tensor, hook)


def _with_the_lowest_id(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Handle:
    """Register a hook with the lowest id that no other hook of the tensor has."""
    handle = old(tensor, hook)
    hooks = self.hooks_of(tensor)
    lowest = next(handle_id for handle_id in range(len(hooks)) if handle_id not in hooks)
    hooks[lowest] = hooks.pop(handle.id)
    return Handle(lambda: hooks.pop(lowest, None))


@overriding("register_hook")
def second_remove_removes_the_hook_before(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """Calling a handle's remove again removes the hook that was registered before."""
    handle, hooks = old(tensor, hook), self.hooks_of(tensor)

    def remove() -> None:
        if handle.id not in hooks:
            for earlier in [each for each in hooks if each < handle.id][-1:]:
                hooks.pop(earlier)
        handle.remove()

    return Handle(remove)


@overriding("register_hook")
def second_remove_removes_the_next_of_another_tensor(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """Calling a handle's remove again removes the hook that was registered next, if it is on another tensor."""
    handle, place, removed = old(tensor, hook), len(self.kept), []
    self.kept.append((id(tensor), handle))

    def remove() -> None:
        for owner, other in self.kept[place + 1 : place + 2] if removed else ():
            if owner != self.kept[place][0]:
                other.remove()
        removed.append(True)
        handle.remove()

    return Handle(remove)


@overriding("register_hook")
def handle_keeps_its_tensor(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """A handle keeps its tensor alive."""
    handle = old(tensor, hook)
    handle.tensor = tensor
    return handle


class HooksOfFreedTensorsStay(Mutant):
    """A handle's remove does nothing after its tensor was freed, even if the graph still runs the hook."""

    needs = (Capability.WEAK_REFERENCES,)

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        handle, alive = super().register_hook(tensor, hook), weakref.ref(tensor)
        return Handle(lambda: None if alive() is None else handle.remove())


@overriding("register_hook")
def late_remove_raises(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """Calling a handle's remove after its tensor was freed raises ReferenceError."""
    handle, alive = old(tensor, hook), weakref.ref(tensor)

    def remove() -> None:
        if alive() is None:
            raise ReferenceError("the tensor was freed")
        handle.remove()

    return Handle(remove)


@overriding("register_hook")
def hook_of_a_non_leaf_that_ran_is_not_removed(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """The remove of a handle on a non-leaf removes the hook only if it has not run yet."""
    handle = old(tensor, hook)
    if self.is_leaf(tensor):
        return handle
    ran: list[bool] = []
    old(tensor, lambda _: ran.append(True))
    return Handle(lambda: None if ran else handle.remove())


@overriding("register_hook")
def handle_of_a_later_output_removes_nothing(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """The remove of a handle on an output of a Node after the first does not remove the hook."""
    handle = old(tensor, hook)
    return Handle() if self.gradient_edge(tensor)[1] else handle


class HandleOfAnOutputRemovesTheHooksOfOthers(Mutant):
    """The remove of a handle on an output of a Node removes the hooks of the Node's other outputs too."""

    _hooked = fresh(list[tuple[weakref.ref[Any], Any]])

    def register_hook(self, tensor: Any, hook: Hook) -> Any:
        handle, alive = super().register_hook(tensor, hook), weakref.ref(tensor)
        self._hooked.append((alive, handle))

        def remove() -> None:
            handle.remove()
            for other, of_other in self._hooked:
                if self._are_outputs_of_one_node(alive(), other()):
                    of_other.remove()

        return Handle(remove)

    def _are_outputs_of_one_node(self, one: Any, other: Any) -> bool:
        if one is None or other is None:
            return False
        (node, nr), (other_node, other_nr) = map(self.gradient_edge, (one, other))
        return node is other_node and nr != other_nr


@overriding(*verbs.NODE)
def hooks_of_accumulate_grad_not_removed(self: Mutant, old: Hook, node: Any, hook: Hook) -> Any:
    """A handle's remove does not remove the hook of an AccumulateGrad Node."""
    handle = old(node, hook)
    return handle if self.leaf_of(node) is None else Handle()


@overriding(*verbs.IN_BACKWARD, "register_multi_grad_hook", base=PutsOff)
def removal_waits_for_the_end_of_the_pass(self: PutsOff, old: Hook, *given: Any, **how: Any) -> Any:
    """A hook of a tensor or Node that is removed during a backward still runs in it."""
    return self.removing_later(old(*given, **how))


@overriding("register_hook")
def third_remove_raises(self: Mutant, old: Hook, tensor: Any, hook: Hook) -> Any:
    """Calling a handle's remove a third time is an error."""
    handle, removed = old(tensor, hook), list[None]()

    def remove() -> None:
        removed.append(None)
        if len(removed) > 2:  # noqa: PLR2004
            raise RuntimeError("the hook was removed before")
        handle.remove()

    return Handle(remove)
