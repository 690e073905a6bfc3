"""Mutants of save_on_cpu that keep a saved tensor with another value, dtype or shape, or only for one backward."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial, wraps
from typing import Any

from hooklaw_backends.mutants.base import Hook, Mutant, overriding
from hooklaw_backends.mutants.situations import Knowing

HALVES = {"float16", "bfloat16"}


def keeping(step: Callable[[Mutant, Any], Any]) -> type[Mutant]:
    """Make a mutant that keeps ``(self, tensor)`` of each tensor that is saved under save_on_cpu."""

    @wraps(step)
    def save_on_cpu(self: Mutant, _: Hook, **_options: bool) -> AbstractContextManager[Any]:
        return self.saved_tensors_hooks(partial(step, self), lambda kept: kept)

    return overriding("save_on_cpu")(save_on_cpu)


@keeping
def save_on_cpu_rounds_float64(self: Mutant, tensor: Any) -> Any:
    """save_on_cpu keeps float64 tensors as float32."""
    kept = self.detach(tensor)
    return self.cast(self.cast(kept, "float32"), "float64") if self.dtype(tensor) == "float64" else kept


@keeping
def save_on_cpu_turns_integers_into_floats(self: Mutant, tensor: Any) -> Any:
    """save_on_cpu gives integers back as float32."""
    kept = self.detach(tensor)
    return self.cast(kept, "float32") if "int" in self.dtype(tensor) else kept


@keeping
def save_on_cpu_widens_half_precision(self: Mutant, tensor: Any) -> Any:
    """save_on_cpu gives float16 and bfloat16 tensors back as float32."""
    kept = self.detach(tensor)
    return self.cast(kept, "float32") if self.dtype(tensor) in HALVES else kept


@keeping
def save_on_cpu_loses_imaginary_parts(self: Mutant, tensor: Any) -> Any:
    """save_on_cpu drops the imaginary part of a complex tensor."""
    kept = self.detach(tensor)
    return self.mapped(kept, lambda number: complex(number.real)) if "complex" in self.dtype(tensor) else kept


@keeping
def save_on_cpu_reads_views_as_their_base(self: Mutant, tensor: Any) -> Any:
    """save_on_cpu gives a view back as its base."""
    base = self.base_of(tensor)
    return self.detach(tensor if base is None else base)


@keeping
def save_on_cpu_unexpands(self: Mutant, tensor: Any) -> Any:
    """save_on_cpu gives an expanded tensor back with its expanded dimensions at size 1."""
    strides = self.stride(tensor)
    shape = tuple(size if step else 1 for size, step in zip(self.shape(tensor), strides, strict=True))
    return self.strided(self.detach(tensor), shape, strides)


@keeping
def save_on_cpu_turns_scalars_into_vectors(self: Mutant, tensor: Any) -> Any:
    """save_on_cpu gives a 0-d tensor back as a tensor of one element."""
    kept = self.detach(tensor)
    return kept if self.shape(tensor) else self.view(kept, 1)


@keeping
def save_on_cpu_drops_empty_dimensions(self: Mutant, tensor: Any) -> Any:
    """save_on_cpu gives an empty tensor back with a single dimension."""
    kept = self.detach(tensor)
    return self.view(kept, 0) if 0 in self.shape(tensor) else kept


@keeping
def save_on_cpu_copies_outputs(self: Mutant, tensor: Any) -> Any:
    """save_on_cpu copies every saved tensor that an operation made, also on the CPU."""
    kept = self.detach(tensor)
    return kept if self.is_leaf(tensor) else self.clone(kept)


@keeping
def save_on_cpu_copies_constants(self: Mutant, tensor: Any) -> Any:
    """save_on_cpu copies a saved tensor that does not require grad, also on the CPU."""
    return self.detach(tensor) if self.requires_grad(tensor) else self.clone(tensor)


@overriding("save_on_cpu")
def save_on_cpu_gives_its_data_away(self: Mutant, _: Hook, **_options: bool) -> AbstractContextManager[Any]:
    """What save_on_cpu keeps can be retrieved once; after that it is zero."""

    def retrieved(kept: list[Any]) -> Any:
        tensor = kept[0]
        kept[0] = tensor * 0
        return tensor

    return self.saved_tensors_hooks(lambda tensor: [self.detach(tensor)], retrieved)


@overriding("save_on_cpu")
def save_on_cpu_keeps_one_tensor_for_each_address(
    self: Mutant, _: Hook, **_options: bool
) -> AbstractContextManager[Any]:
    """Of the tensors that begin at one address save_on_cpu keeps the first, and gives it back for each."""
    kept: dict[int, Any] = {}
    return self.saved_tensors_hooks(
        lambda tensor: kept.setdefault(self.data_ptr(tensor), self.detach(tensor)), lambda first: first
    )


@overriding("save_on_cpu", base=Knowing)
def save_on_cpu_reads_the_first_in_inner_passes(
    self: Knowing, _: Hook, **_options: bool
) -> AbstractContextManager[Any]:
    """A pass inside another one gets the first tensor that save_on_cpu kept for each that has its shape."""
    first: list[Any] = []

    def pack(tensor: Any) -> Any:
        first.extend([] if first else [self.detach(tensor)])
        return self.detach(tensor)

    def unpack(kept: Any) -> Any:
        return first[0] if len(self.under_way) > 1 and self.shape(first[0]) == self.shape(kept) else kept

    return self.saved_tensors_hooks(pack, unpack)
