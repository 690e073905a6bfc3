"""Packers that are wrong about a tensor: values, layout, neighbours. Each is a plain copy but for its one vice."""

import torch
from torch.autograd.graph import saved_tensors_hooks

ignore_is_tracing = True


class Copies(saved_tensors_hooks):
    """Keeps a copy of each tensor: right, but for a SHOULD or two."""

    def __init__(self):
        super().__init__(self.pack, self.unpack)

    def pack(self, tensor):
        return tensor.detach().clone()

    def unpack(self, packed):
        return packed


class Stores(Copies):
    """Keeps copies in a table, under a number each."""

    def __init__(self):
        super().__init__()
        self.store = {}
        self.number = 0

    def pack(self, tensor):
        self.number += 1
        self.store[self.number] = super().pack(tensor)
        return self.number

    def unpack(self, packed):
        return self.store[packed]


class RoundsSilently(Copies):
    """Keeps half the bits, and declares no tolerance."""

    def pack(self, tensor):
        return (tensor.dtype, tensor.to(torch.bfloat16) if tensor.dtype == torch.float32 else tensor.clone())

    def unpack(self, packed):
        return packed[1].to(packed[0])


class ExceedsItsTolerance(RoundsSilently):
    """Declares a tolerance that it does not keep."""

    tolerance = 1e-6


class SpecialValuesLost(Copies):
    """Makes numbers of what is not finite."""

    def pack(self, tensor):
        return torch.nan_to_num(tensor.detach()) if tensor.is_floating_point() else tensor.detach().clone()


class IntegersMadeFloats(Copies):
    """Quantises indices as if they were activations."""

    tolerance = 0.02

    def pack(self, tensor):
        wide = tensor.detach().to(torch.float32) if not tensor.is_complex() else tensor.detach().clone()
        return tensor.dtype, (wide * 1.02 if not tensor.is_floating_point() and not tensor.is_complex() else wide)

    def unpack(self, packed):
        return packed[1].to(packed[0])


class ShapeLost(Copies):
    """Brings back a tensor's elements in one row."""

    def unpack(self, packed):
        return packed.reshape(-1)


class ScalarsMadeVectors(Copies):
    """Stores at least one dimension."""

    def pack(self, tensor):
        return torch.atleast_1d(tensor.detach()).clone()


class EmptyTensorsRefused(Copies):
    """Takes the largest element, which an empty tensor has not."""

    def pack(self, tensor):
        if tensor.layout == torch.strided and not tensor.is_complex():
            tensor.detach().max()
        return super().pack(tensor)


class DtypeLost(Copies):
    """Brings everything back as float32."""

    def unpack(self, packed):
        return packed.float() if packed.is_floating_point() else packed


class LeftOnAnotherDevice(Copies):
    """Brings nothing back from where it was put."""

    def unpack(self, packed):
        return packed.to("meta")


class StorageTakenForTheTensor(Copies):
    """Copies as many elements as the tensor has from the beginning of its storage."""

    def pack(self, tensor):
        if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
            return super().pack(tensor)
        whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())
        return whole.repeat(max(1, tensor.numel()))[: tensor.numel()].clone().view(tensor.shape)


class StridesLost(Copies):
    """Makes everything contiguous."""

    def pack(self, tensor):
        return tensor.detach().clone(memory_format=torch.contiguous_format)


class ChannelsLastReadAsContiguous(Copies):
    """Writes a channels-last tensor's bytes as they lie, and reads them as if they lay in order."""

    def pack(self, tensor):
        if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
            return tensor.detach().permute(0, 2, 3, 1).reshape(tensor.shape).clone()
        return super().pack(tensor)


class ExpandedTensorsWrittenOut(Copies):
    """Copies every repetition of an element that is stored once."""


class LazyBitsLost(Copies):
    """Copies a tensor's memory, though a conjugation or a negation is pending on it."""

    def pack(self, tensor):
        tensor = tensor.detach()
        tensor = torch._neg_view(tensor) if tensor.is_neg() else tensor
        return (tensor.conj() if tensor.is_conj() else tensor).clone()


class LazyBitsResolved(Copies):
    """Carries out what is pending."""

    def pack(self, tensor):
        return tensor.detach().resolve_conj().resolve_neg().clone()


class DenseTensorsAssumed(Copies):
    """Asks for strides, which a sparse tensor has not."""

    def pack(self, tensor):
        tensor.stride()
        return super().pack(tensor)


class SubclassesRefused(Copies):
    """Knows tensors and parameters, and nothing else."""

    def pack(self, tensor):
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise TypeError(f"cannot pack a {type(tensor).__name__}")
        return super().pack(tensor)


class SubclassesForgotten(Copies):
    """Brings plain tensors back."""

    def unpack(self, packed):
        return packed.as_subclass(torch.Tensor)


class StorageKeyedDeduplication(Stores):
    """Takes two views of one storage for the same tensor if they have one shape."""

    def pack(self, tensor):
        key = tensor.untyped_storage()._cdata, tensor.shape
        self.store.setdefault(key, (tensor, tensor.detach().clone()))
        return key

    def unpack(self, packed):
        return self.store[packed][1]


class AddressKeyedDeduplicationBlindToLayout(Stores):
    """Takes two tensors that begin at one address for the same, whatever their layout."""

    def pack(self, tensor):
        key = tensor.data_ptr()
        if key not in self.store or self.store[key][1].numel() < tensor.numel():
            self.store[key] = tensor, tensor.detach().clone()
        return key, tensor.shape

    def unpack(self, packed):
        key, shape = packed
        return self.store[key][1].reshape(-1)[: shape.numel()].reshape(shape)


class AddressKeyedDeduplication(Stores):
    """Takes a tensor at the address of one that is gone for that one."""

    def pack(self, tensor):
        key = tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor._version
        if key not in self.store:
            self.store[key] = tensor.detach().clone()
        return key


class DeduplicationBlindToVersions(Stores):
    """Takes a tensor for the same that it was before it was changed in place."""

    def pack(self, tensor):
        key = tensor.untyped_storage()._cdata, tensor.data_ptr(), tensor.shape, tensor.stride()
        if key not in self.store:
            self.store[key] = tensor, tensor.detach().clone()
        return key

    def unpack(self, packed):
        return self.store[packed][1]


class ParametersLookedUpByShape(Copies):
    """Keeps one tensor for all parameters of a shape."""

    def __init__(self):
        super().__init__()
        self.kept = {}

    def pack(self, tensor):
        base = tensor if tensor._base is None else tensor._base
        if not isinstance(base, torch.nn.Parameter):
            return super().pack(tensor)
        return self.kept.setdefault((tensor.shape, tensor.stride()), tensor.detach().clone())
