# ruff: noqa: SLF001 - torch has no public API for a device in Python
# pyright: reportPrivateUsage=false
"""The device ``npy``, made in Python: its memory is memory of the host, and the host runs its kernels.

Importing this module registers the device with torch. It needs torch 2.13 or newer.
"""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils import backend_registration

NAME = "npy"
KEY = "PrivateUse1"
VIEWS = """
    _reshape_alias alias as_strided diagonal expand permute select.int slice.Tensor split.Tensor split_with_sizes
    squeeze squeeze.dim squeeze.dims t transpose.int unbind.int unfold unsqueeze view view.dtype view_as_complex
    view_as_real
"""
"""The operators that return views, each of which torch must be told of."""
MEMORY: dict[int, torch.Tensor] = {}
"""The tensor of the host behind each storage of the device, by the storage's address."""


class Module(backend_registration._DummyBackendModule):
    """What torch asks a device, as ``torch.npy``."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """Return the dtypes that autocast can choose."""
        return [torch.float16]


def on_device(host: Any) -> Any:
    """Return a tensor of the device that shares the memory of a tensor of the host."""
    if not isinstance(host, torch.Tensor):
        return host
    made = torch._C._acc.create_empty_tensor(list(host.shape), host.dtype)  # pyright: ignore[reportAttributeAccessIssue]
    storage = made.untyped_storage()
    MEMORY[storage._cdata] = host
    weakref.finalize(storage, MEMORY.pop, storage._cdata)
    return made


def on_host(value: Any) -> Any:
    """Return the tensor of the host behind a tensor of the device, or the value itself if it is something else."""
    if isinstance(value, torch.device):
        return torch.device("cpu")
    is_ours = isinstance(value, torch.Tensor) and value.device.type == NAME
    return MEMORY[value.untyped_storage()._cdata] if is_ours else value


def kernel(operator: Any, *arguments: Any, **options: Any) -> Any:
    """Run an operator on the host; return the tensors that it wrote to, or else its new tensors."""
    host_arguments, host_options = pytree.tree_map(on_host, (arguments, options))
    result = operator(*host_arguments, **host_options)
    declared = operator._schema.arguments
    given = dict(zip((argument.name for argument in declared), arguments, strict=False)) | options
    writes = [argument.name for argument in declared if argument.alias_info and argument.alias_info.is_write]
    written = [given[name] for name in writes if given.get(name) is not None]
    for tensor in pytree.tree_leaves(written):
        if tensor.shape != on_host(tensor).shape:
            tensor.data = on_device(on_host(tensor))
    if not written:
        return pytree.tree_map(on_device, result)
    return written[0] if len(written) == 1 else tuple(written)


def copy(source: Any, target: Any, non_blocking: bool = False) -> Any:  # noqa: ARG001, FBT001, FBT002 - torch's
    """Copy a tensor into another; one of them is on the device."""
    on_host(target).copy_(on_host(source))
    return target


def view_kernel(name: str) -> Callable[..., Any]:
    """Return the kernel of an operator that returns views, by its name and overload."""
    packet, _, overload = name.partition(".")
    view = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return lambda *arguments, **options: kernel(view, *arguments, **options)


def autoload() -> None:
    """Do nothing: torch calls this once it has imported the module, if the package has an entry point for it."""


backend_registration._setup_privateuseone_for_python_backend(rename=NAME, backend_module=Module())
library, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
library.fallback(kernel, KEY)
aten.impl("_copy_from", copy, KEY)
for each in VIEWS.split():
    aten.impl(each, view_kernel(each), KEY)
