"""DataParallel in three forms: over several GPUs, twice on one GPU, and in two threads on any other device."""

import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch._utils import ExceptionWrapper

REPLICAS = 2
"""The number of replicas on a single device."""


def data_parallel(module: Any, device: Any) -> Any:
    """Wrap a module in the form that the device allows."""
    devices = _device_ids(device)
    return torch.nn.DataParallel(module, devices) if devices else ThreadParallel(module)


def replica_count(device: Any) -> int:
    """Return the number of replicas that a call runs."""
    return len(_device_ids(device)) or REPLICAS


def form(device: Any) -> str:
    """Return one sentence that says which form runs."""
    devices = _device_ids(device)
    if not devices:
        return (
            f"torch.nn.DataParallel's own forward with {REPLICAS} replicas in {REPLICAS} threads on {device}, "
            "where broadcast, scatter and gather are plain tensor operations."
        )
    if len(set(devices)) == 1:
        return f"torch.nn.DataParallel with {len(devices)} replicas on one GPU, device_ids={devices}."
    return f"torch.nn.DataParallel over {len(devices)} GPUs, device_ids={devices}."


def _device_ids(device: Any) -> list[int]:
    if device.type != "cuda":
        return []
    first = torch.cuda.current_device() if device.index is None else device.index
    others = [index for index in range(torch.cuda.device_count()) if index != first]
    return [first, *(others or [first] * (REPLICAS - 1))]


class ThreadParallel(torch.nn.DataParallel[Any]):  # pyright: ignore[reportUntypedBaseClass] - torch is an extra
    """DataParallel without a second device: the same steps, with one thread for each replica.

    The parent's constructor is not called: it would use the machine's GPUs, or replicate nothing without them.
    """

    def __init__(self, module: Any) -> None:
        torch.nn.Module.__init__(self)
        self.module = module
        self.dim = 0
        self.device_ids = list(range(REPLICAS))
        self.output_device = 0
        self.src_device_obj = next(module.parameters()).device

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Sequence[Any]) -> Any:
        """Split tensors along the first dimension; every replica gets the other values unchanged."""
        count = len(device_ids)
        parts = [each.chunk(count, self.dim) if isinstance(each, torch.Tensor) else (each,) * count for each in inputs]
        rows = tuple(zip(*parts, strict=False))  # a short tensor fills fewer replicas, as in the parent
        return rows, tuple(dict(kwargs) for _ in rows)

    def replicate(self, module: Any, device_ids: Sequence[Any]) -> list[Any]:
        """Copy the module for each device; the first copy shares storage with the original, as in the parent."""
        return [_replica(module, {}, shared=place == 0) for place in range(len(device_ids))]

    def parallel_apply(self, replicas: Sequence[Any], inputs: Sequence[Any], kwargs: Any) -> list[Any]:
        """Run each replica in its own thread; an exception there is raised here, with its type."""
        recording = torch.is_grad_enabled()
        outputs: list[Any] = [None] * len(replicas)

        def run(place: int) -> None:
            torch.set_grad_enabled(recording)
            try:
                outputs[place] = replicas[place](*inputs[place], **kwargs[place])
            except Exception:  # noqa: BLE001 - the caller raises it again
                outputs[place] = ExceptionWrapper(where=f"in replica {place}")

        threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in range(len(replicas))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for output in outputs:
            if isinstance(output, ExceptionWrapper):
                output.reraise()
        return outputs

    def gather(self, outputs: Any, output_device: Any) -> Any:  # noqa: ARG002 - all outputs are on one device
        """Join the outputs along the first dimension; scalars become a vector."""
        return torch.cat([torch.atleast_1d(output) for output in outputs], self.dim)


def _replica(module: Any, made: dict[Any, Any], *, shared: bool) -> Any:
    """Copy a module and its submodules; parameters become non-leaf tensors that feed the original ones."""
    if module in made:
        return made[module]
    replica = made[module] = module._replicate_for_data_parallel()  # noqa: SLF001 - the parent uses it too
    for name, child in module._modules.items():  # noqa: SLF001 - named_children skips a child's second name
        setattr(replica, name, None if child is None else _replica(child, made, shared=shared))
    for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
        setattr(replica, name, parameter.view_as(parameter) if shared else parameter.clone())
    for name, buffer in module.named_buffers(recurse=False, remove_duplicate=False):
        setattr(replica, name, buffer if shared else buffer.clone())
    return replica
