"""Mutants that call pack at the wrong time or on the wrong tensor, or do not check it."""

import weakref
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial, wraps
from math import prod
from typing import Any

from hooklaw_backends.mutants.base import Hook, InBackward, Mutant, Pair, calling, fresh, overriding, packing, pairs
from hooklaw_backends.mutants.shared import falsy_means_saved
from hooklaw_backends.mutants.situations import SECOND, Knowing


@pairs("saved_tensors_hooks")
def packed_again_by_backward(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """pack is called again each time the tensor is unpacked."""

    def keep(tensor: Any) -> Any:
        pack(tensor)
        return self.detach(tensor)

    return keep, lambda tensor: unpack(pack(tensor))


@pairs("saved_tensors_hooks")
def packed_by_backward(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """pack is called during backward instead of when the tensor is saved."""
    return self.detach, lambda tensor: unpack(pack(tensor))


@overriding("saved_tensors_hooks")
@contextmanager
def packed_at_context_exit(self: Mutant, old: Hook, pack: Hook, unpack: Hook) -> Generator[None]:
    """pack is called when the context is left instead of when the tensor is saved."""
    cells: list[list[Any]] = []

    def keep(tensor: Any) -> Any:
        cells.append([self.detach(tensor)])
        return cells[-1]

    with old(keep, lambda cell: unpack(cell[0])):
        yield
    for cell in cells:
        cell[0] = pack(cell[0])


@pairs("saved_tensors_hooks")
def unpacked_during_forward(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """unpack is called right after pack, and the packed object is released."""
    return lambda tensor: unpack(pack(tensor)), lambda tensor: tensor


@pairs("saved_tensors_hooks")
def saves_of_one_tensor_packed_once(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """A tensor that is saved twice is packed only once."""
    packed: dict[int, Any] = {}

    def pack_once(tensor: Any) -> Any:
        place = self.data_ptr(tensor)
        if place not in packed:
            packed[place] = pack(tensor)
        return packed[place]

    return pack_once, unpack


@packing("saved_tensors_hooks")
def saved_leaves_packed_twice(self: Mutant, pack: Hook, tensor: Any) -> Any:
    """pack is called twice when a leaf is saved."""
    if self.is_leaf(tensor):
        pack(tensor)
    return pack(tensor)


@pairs("saved_tensors_hooks")
def saves_of_one_intermediate_packed_once(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """An intermediate that is saved twice is packed only once; a leaf is packed for each save."""
    packed: list[tuple[Any, Any]] = []

    def pack_once(tensor: Any) -> Any:
        if self.is_leaf(tensor):
            return pack(tensor)
        if not any(tensor is saved for saved, _ in packed):
            packed.append((tensor, pack(tensor)))
        return next(kept for saved, kept in packed if tensor is saved)

    return pack_once, unpack


@packing("saved_tensors_hooks")
def pack_must_return_a_tensor(self: Mutant, pack: Hook, tensor: Any) -> Any:
    """A pack hook that returns anything but a tensor is an error."""
    packed = pack(tensor)
    if not self.is_tensor(packed):
        raise RuntimeError("a pack hook must return a tensor")
    return packed


@packing("saved_tensors_hooks")
def packed_containers_flattened(self: Mutant, pack: Hook, tensor: Any) -> Any:
    """If pack returns a list or tuple, only its first element is kept."""
    packed = pack(tensor)
    return packed[0] if isinstance(packed, tuple | list) and packed else packed


@packing("saved_tensors_hooks", "saved_tensor_register_hooks")
def pack_in_place_not_detected(self: Mutant, pack: Hook, tensor: Any) -> Any:
    """A pack hook that changes its input in place is not an error, because the input is a copy."""
    return pack(self.clone(self.detach(tensor)))


@packing("saved_tensors_hooks")
def pack_receives_a_detached_tensor(self: Mutant, pack: Hook, tensor: Any) -> Any:
    """The pack hook of a context gets a detached tensor."""
    return pack(self.detach(tensor))


@packing("saved_tensors_hooks")
def pack_receives_another_leaf(self: Mutant, pack: Hook, tensor: Any) -> Any:
    """In the place of a leaf that requires grad the pack hook of a context gets another leaf with its data."""
    if self.requires_grad(tensor) and self.is_leaf(tensor):
        return pack(self.requires_grad_(self.detach(tensor)))
    return pack(tensor)


@packing("saved_tensors_hooks")
def pack_runs_with_grad(self: Mutant, pack: Hook, tensor: Any) -> Any:
    """Grad mode is on while pack runs."""
    with self.enable_grad():
        return pack(tensor)


@pairs("saved_tensor_register_hooks")
def per_tensor_pack_deferred(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """The pack hook registered on a single saved tensor is called only when the tensor is read."""
    return self.detach, lambda kept: unpack(pack(kept))


@pairs("saved_tensor_register_hooks")
def per_tensor_pack_again_at_later_reads(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """The pack hook registered on a single saved tensor is called again when the tensor is read a second time."""
    reads: list[Any] = []

    def unpacking(both: Pair) -> Any:
        if any(both is each for each in reads):
            pack(both[1])
        reads.append(both)
        return unpack(both[0])

    return lambda tensor: (pack(tensor), self.detach(tensor)), unpacking


@pairs("saved_tensor_register_hooks", base=InBackward)
def per_tensor_hooks_ignored_by_backward(self: InBackward, pack: Hook, unpack: Hook) -> Pair:
    """Hooks registered on a single saved tensor are used by reads but not by backward."""
    return lambda tensor: (pack(tensor), tensor), lambda both: unpack(both[0]) if self.root is None else both[1]


@packing("saved_tensor_register_hooks")
def per_tensor_pack_receives_the_live_tensor(self: Mutant, pack: Hook, tensor: Any) -> Any:
    """The pack hook registered on a single saved tensor gets a tensor that requires grad."""
    return pack(self.requires_grad_(self.detach(tensor)))


@overriding("saved_tensor_register_hooks")
def hooks_accepted_after_release(self: Mutant, old: Hook, *given: Any) -> None:
    """Registering hooks on a released saved tensor does nothing instead of raising an error."""
    with _accepting("freed"):
        old(*given)


@overriding("saved_tensor_register_hooks")
def second_pair_replaces_the_first(self: Mutant, old: Hook, *given: Any) -> None:
    """Registering hooks twice on a saved tensor is not an error."""
    with _accepting("already"):
        old(*given)


@contextmanager
def _accepting(word: str) -> Generator[None]:
    """Suppress an error whose message has a word in it."""
    try:
        yield
    except RuntimeError as error:
        if word not in str(error):
            raise


class _Multiplying(Mutant):
    """A mutant that knows whether a product is being computed."""

    multiplying = False

    def call(self, fn: Hook, *tensors: Any) -> Any:
        with self.products_by(self._product):
            return super().call(fn, *tensors)

    def _product(self, multiply: Hook, left: Any, right: Any) -> Any:
        self.multiplying = True
        try:
            return multiply(left, right)
        finally:
            self.multiplying = False


@pairs("saved_tensors_hooks", base=_Multiplying)
def falsy_packed_by_products_is_not_unpacked(self: _Multiplying, pack: Hook, unpack: Hook) -> Pair:
    """If pack returns None, 0 or something empty for a factor of a product, the saved tensor is used."""
    return falsy_means_saved(self, pack, unpack, lambda _: self.multiplying)


class _SavesMore(Mutant):
    """A mutant that keeps the pack hooks that are active."""

    @contextmanager
    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Generator[None]:
        self.kept.append(pack)
        try:
            with super().saved_tensors_hooks(pack, unpack):
                yield
        finally:
            self.kept.pop()

    def save_too(self, tensor: Any) -> None:
        """Pack a tensor that need not be saved."""
        if self.kept:
            self.kept[-1](tensor)


class EveryOperandSaved(_SavesMore):
    """A product also saves a factor that backward does not need, and a sum or a copy saves its input."""

    def call(self, fn: Hook, *tensors: Any) -> Any:
        with self.products_by(self.saving):
            return super().call(fn, *tensors)

    def saving(self, multiply: Hook, left: Any, right: Any) -> Any:
        if self.is_tensor(right) and self.requires_grad(left) and not self.requires_grad(right):
            self.save_too(left)
        return multiply(left, right)

    def sum(self, tensor: Any) -> Any:
        self.save_too(tensor)
        return super().sum(tensor)

    def clone(self, tensor: Any) -> Any:
        if self.requires_grad(tensor):
            self.save_too(tensor)
        return super().clone(tensor)


@overriding("exp", base=_SavesMore)
def saved_without_grad(self: _SavesMore, old: Hook, tensor: Any) -> Any:
    """An operation saves its output even if nothing requires grad."""
    output = old(tensor)
    if not self.requires_grad(output):
        self.save_too(output)
    return output


def packing_only(step: Hook) -> type[Mutant]:
    """Make a mutant that packs only the tensors for which ``(self, tensor)`` is true."""

    def only(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
        def some(tensor: Any) -> Any:
            return (True, pack(tensor)) if step(self, tensor) else (False, self.detach(tensor))

        return some, lambda kept: unpack(kept[1]) if kept[0] else kept[1]

    return pairs("saved_tensors_hooks")(wraps(step)(only))


@packing_only
def second_saved_tensor_not_packed(self: Mutant, _tensor: Any) -> bool:
    """The second tensor that is saved is not packed."""
    self.kept.append(None)
    return len(self.kept) != SECOND


@packing_only
def integers_not_packed(self: Mutant, tensor: Any) -> bool:
    """Saved integer tensors are not packed."""
    return self.is_floating(tensor) or "complex" in self.dtype(tensor)


def has_integers(mutant: Mutant, tensor: Any) -> bool:
    """Whether a tensor has integers or bools."""
    return not mutant.is_floating(tensor) and "complex" not in mutant.dtype(tensor)


@packing_only
def integers_without_dimensions_not_packed(self: Mutant, tensor: Any) -> bool:
    """Saved integer tensors without dimensions are not packed."""
    return not has_integers(self, tensor) or len(self.shape(tensor)) > 0


@packing_only
def integers_without_elements_not_packed(self: Mutant, tensor: Any) -> bool:
    """Saved integer tensors without elements are not packed."""
    return not has_integers(self, tensor) or prod(self.shape(tensor)) > 0


@packing_only
def matrices_of_integers_not_packed(self: Mutant, tensor: Any) -> bool:
    """Saved integer tensors of more than one dimension are not packed."""
    return not has_integers(self, tensor) or len(self.shape(tensor)) <= 1


class BareContext:
    """A ctx of a custom Function that keeps saved tensors as a plain attribute."""

    saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors


@overriding("custom_function")
def custom_functions_bypass_saved_tensor_hooks(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Hook:
    """Tensors that a custom Function saves are not packed."""

    def plain_forward(ctx: Any, *tensors: Any) -> Any:
        ctx.plain = BareContext()
        return forward(ctx.plain, *tensors)

    return old(plain_forward, lambda ctx, *grads: backward(ctx.plain, *grads), **options)


@overriding("custom_function")
def ctx_attributes_packed(self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool) -> Hook:
    """Tensors that a custom Function stores as attributes of ctx are packed."""

    def saving(ctx: Any, *tensors: Any) -> Any:
        output = forward(ctx, *tensors)
        found = [value for value in vars(ctx).values() if self.is_tensor(value)]
        if found:
            ctx.save_for_backward(*(ctx.to_save or ()), *found)
        return output

    return old(saving, backward, **options)


@overriding("custom_function")
def intermediates_of_custom_functions_not_packed(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Hook:
    """Only the inputs among the tensors that a custom Function saves are packed."""

    def bare(ctx: Any, *tensors: Any) -> Any:
        ctx.bare = BareContext()
        output = forward(ctx.bare, *tensors)
        saved = ctx.bare.saved_tensors
        ctx.save_for_backward(*(kept for kept in saved if any(kept is tensor for tensor in tensors)))
        return output

    def reading(ctx: Any, *grads: Any) -> Any:
        _ = ctx.saved_tensors
        return backward(ctx.bare, *grads)

    return old(bare, reading, **options)


@overriding("custom_function")
def outputs_of_custom_functions_not_packed(
    self: Mutant, old: Hook, forward: Hook, backward: Hook, **options: bool
) -> Hook:
    """An output that a custom Function saves is not packed."""

    def bare(ctx: Any, *tensors: Any) -> Any:
        ctx.bare = BareContext()
        output = forward(ctx.bare, *tensors)
        ctx.save_for_backward(*(None if kept is output else kept for kept in ctx.bare.saved_tensors))
        ctx.bare.save_for_backward(*(self.detach(kept) if kept is output else None for kept in ctx.bare.saved_tensors))
        return output

    def reading(ctx: Any, *grads: Any) -> Any:
        both = zip(ctx.saved_tensors, ctx.bare.saved_tensors, strict=True)
        ctx.bare.save_for_backward(*(packed if output is None else output for packed, output in both))
        return backward(ctx.bare, *grads)

    return old(bare, reading, **options)


@calling("custom_function")
def unpacked_before_the_node_runs(self: Mutant, backward: Hook, ctx: Any, *grads: Any) -> Any:
    """A custom Function's saved tensors are unpacked before its backward starts."""
    bare = BareContext()
    bare.save_for_backward(*ctx.saved_tensors)
    return backward(bare, *grads)


@pairs("saved_tensors_hooks")
def pack_runs_with_grad_from_its_third_call(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """Grad mode is on while pack runs for the third time or later."""
    calls: list[None] = []

    def keep(tensor: Any) -> Any:
        calls.append(None)
        with self.enable_grad() if len(calls) > 2 else self.no_grad():  # noqa: PLR2004 - the third
            return pack(tensor)

    return keep, unpack


@pairs("saved_tensors_hooks")
def packs_of_later_contexts_run_with_grad(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """Grad mode is on while pack runs, except for the first context of saved-tensor hooks."""
    self.kept.append(pack)
    is_first = len(self.kept) == 1

    def keep(tensor: Any) -> Any:
        with self.no_grad() if is_first else self.enable_grad():
            return pack(tensor)

    return keep, unpack


@pairs("saved_tensors_hooks", base=Knowing)
def pack_runs_with_grad_in_a_pass(self: Knowing, pack: Hook, unpack: Hook) -> Pair:
    """Grad mode is on while pack runs during a pass."""

    def keep(tensor: Any) -> Any:
        with self.enable_grad() if self.under_way else self.no_grad():
            return pack(tensor)

    return keep, unpack


@pairs("saved_tensors_hooks", base=Knowing)
def pack_runs_with_grad_in_a_pass_that_creates_a_graph(self: Knowing, pack: Hook, unpack: Hook) -> Pair:
    """Grad mode is on while pack runs during a pass that creates a graph."""

    def keep(tensor: Any) -> Any:
        with self.enable_grad() if self.running("create_graph") else self.no_grad():
            return pack(tensor)

    return keep, unpack


@pairs("saved_tensors_hooks")
def pack_lost_once_raised(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """A pack hook that has raised is not called again: the tensors are saved without it."""
    raised: list[None] = []

    def keep(tensor: Any) -> Any:
        try:
            return (None, self.detach(tensor)) if raised else (pack(tensor), None)
        except BaseException:
            raised.append(None)
            raise

    return keep, lambda both: unpack(both[0]) if both[1] is None else both[1]


class PairEnteredInNoGradPacks(Mutant):
    """A pair that is entered under no_grad packs the output of an operation that is not recorded."""

    @contextmanager
    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Generator[None]:
        self.kept.append(None if self.is_grad_enabled() else pack)
        try:
            with super().saved_tensors_hooks(pack, unpack):
                yield
        finally:
            self.kept.pop()

    def exp(self, tensor: Any) -> Any:
        output = super().exp(tensor)
        if self.kept and self.kept[-1] and self.requires_grad(tensor) and not self.requires_grad(output):
            self.kept[-1](output)
        return output


class _Cell:
    def __init__(self, packed: Any, unpack: Hook) -> None:
        self.packed, self.unpack, self.ready = packed, unpack, []


class OutputsNotPackedAgainAsInputs(Mutant):
    """An output that its operation saved is not packed again where the next operation saves it as its input."""

    in_exp = False
    cells = fresh(dict[Any, Any])

    def exp(self, tensor: Any) -> Any:
        self.in_exp = True
        try:
            return super().exp(tensor)
        finally:
            self.in_exp = False

    def saved_tensors_hooks(self, pack: Hook, unpack: Hook) -> Any:
        def keep(tensor: Any) -> Any:
            place = self.data_ptr(tensor), self.shape(tensor), unpack
            cell = None if self.in_exp or place not in self.cells else self.cells[place]()
            if cell is None:
                cell = _Cell(pack(tensor), unpack)
            if self.in_exp:
                self.cells[place] = weakref.ref(cell)
            return cell

        return super().saved_tensors_hooks(keep, lambda cell: unpack(cell.packed))


@packing("saved_tensors_hooks")
def exceptions_of_pack_made_anew(self: Mutant, pack: Hook, tensor: Any) -> Any:
    """An exception in pack becomes a new one of its type and message."""
    try:
        return pack(tensor)
    except Exception as error:  # noqa: BLE001 - the fault
        raise type(error)(str(error)) from None


@pairs("saved_tensors_hooks")
def exceptions_of_pairs_copied(self: Mutant, pack: Hook, unpack: Hook) -> Pair:
    """An exception in pack or unpack becomes a new one of its type and arguments."""

    def remade(hook: Hook, given: Any) -> Any:
        try:
            return hook(given)
        except Exception as error:
            raise type(error)(*error.args) from error

    return partial(remade, pack), partial(remade, unpack)
