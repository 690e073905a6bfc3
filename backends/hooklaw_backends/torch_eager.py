"""torch in eager mode, on the CPU or on any device that torch names by a string."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from typing import Any

from hooklaw import Capability, ErrorKind, NotRunError, TorchLike
from hooklaw.backend.capabilities import SEVERAL_PROCESSES
from hooklaw.backend.torchlike import remove_global_hooks

try:
    import torch
    from torch.autograd.function import once_differentiable
except ImportError as missing:
    raise NotRunError("torch is not installed: pip install 'hooklaw[torch]'") from missing

from hooklaw_backends import _data_parallel, _distributed

modules = torch.nn.modules.module
checkpoints = import_module("torch.utils.checkpoint")
EXPECTATIONS = Path(__file__).with_name("expectations")
Hook = Callable[..., Any]
HOST_ONLY = frozenset({Capability.CALLER_THREAD, Capability.HOST})
DEVICE_ONLY = frozenset({Capability.ACCELERATOR})
CHANNELS_LAST_DIMENSIONS = 4
EARLY_STOP_OPTION = "early_stop" in signature(checkpoints.checkpoint).parameters
"""Before torch 2.9 only a context manager sets early_stop."""
EDGE_ROOTS = "GradientEdge" in str(signature(torch.autograd.backward).parameters["tensors"].annotation)
"""Before torch 2.7 backward starts at tensors only."""


def backend(argument: str = "") -> "TorchEager":
    """Return the backend for a device: empty or ``cpu``, ``cuda``, ``cuda:1``, or one that a package registered."""
    device = argument or "cpu"
    if device == "cpu":
        _distributed.hide_gpus()
    check_device(device)
    return TorchEager(device)


def check_device(device: str) -> None:
    """Make a tensor on a device; ValueError for a word that torch does not know, NotRunError where there is none.

    On the CPU its backward runs, too: in torch's CUDA build a first backward after a compiler forbids all later forks.
    """
    kind = _kind_of(device)
    try:
        if kind == "cuda" and not torch.cuda.is_available():
            raise NotRunError(f"no CUDA device here (torch {torch.__version__} finds none)")
        made = torch.ones(1, device=device, requires_grad=kind == "cpu")
        if made.requires_grad:
            made.backward()
    except (RuntimeError, AssertionError, AttributeError, ImportError) as error:
        said = str(error).splitlines()[0].partition(". ")[0]  # what follows lists every backend of torch
        raise NotRunError(f"torch {torch.__version__} cannot use the device {device!r}: {said}") from error


def _kind_of(device: str) -> str:
    """Return the type of a device; ValueError for a word that no machine's torch knows."""
    try:
        return torch.device(device).type
    except RuntimeError as error:
        hint = "check the word, or name the package that adds the device with --import"
        raise ValueError(f"torch {torch.__version__} does not know the device {device!r}: {hint}") from error


class PlainTensor(torch.Tensor):
    """A subclass of tensors that changes nothing."""


class TorchEager(_distributed.Distributed, TorchLike):
    """The verbs as PyTorch has them."""

    framework = torch
    expectations: Path | None = EXPECTATIONS / "torch-eager.toml"
    findings: Path | None = Path(__file__).with_name("findings") / "torch-eager.toml"
    imports_late: Mapping[Capability, str] = {
        **dict.fromkeys((Capability.CHECKPOINT, Capability.OPTIMIZERS), "torch._dynamo"),
        **_distributed.IMPORTS_LATE,
    }
    errors: Mapping[ErrorKind, tuple[type[BaseException], ...]] = {
        ErrorKind.HOOK_RETURN_TYPE: (TypeError,),
        ErrorKind.UNPACK_RETURN_TYPE: (TypeError,),
        ErrorKind.MULTI_GRAD_MODE: (ValueError,),
        ErrorKind.UNUSED_CONFLICT: (ValueError,),
        ErrorKind.LOAD_HOOK_RETURN: (AssertionError,),
        ErrorKind.OUTSIDE_MUTATION: (AssertionError,),
        ErrorKind.CHECKPOINT_OPTION: (ValueError,),
        ErrorKind.CHECKPOINT_POLICY: (ValueError,),
        ErrorKind.COMM_HOOK_SIGNATURE: (ValueError, KeyError),
        ErrorKind.COMM_HOOK_TWICE: (RuntimeError, AssertionError),
    }

    alone = ""
    """Why no rule runs in several processes, where the mode is the reason."""

    def __init__(self, device: str = "cpu", name: str = "") -> None:
        os.environ.setdefault("TORCH_DISABLE_ADDR2LINE", "1")  # debug of a checkpoint would read all symbols of torch
        self.name = name or ("torch-eager" if device == "cpu" else f"torch-eager:{device}")
        self._device = torch.device(device)
        of_device = EXPECTATIONS / f"torch-eager-{self._device.type}.toml"
        if self.expectations == TorchEager.expectations and of_device.exists():
            self.expectations = of_device
        on_host = self._device.type == "cpu"
        why = f"the device is {device}"
        self.lacks: dict[Capability, str] = dict.fromkeys(DEVICE_ONLY if on_host else HOST_ONLY, why)
        self.lacks |= _not_in_this_version()
        if alone := self.alone or _distributed.why_not(self._device):
            self.lacks |= dict.fromkeys(SEVERAL_PROCESSES, alone)
        else:
            self.lacks |= _distributed.lacks()
        self.capabilities = frozenset(Capability) - self.lacks.keys()
        self.versions = {"torch": torch.__version__, **_hardware(self._device)}
        self.notes: dict[str, str] = {"data-parallel": _data_parallel.form(self._device)}

    def reset(self) -> None:
        """Undo what a rule that failed halfway may have left behind."""
        torch.set_grad_enabled(True)
        remove_global_hooks(self)

    # values
    def tensor(self, data: Any, *, requires_grad: bool = False, dtype: str = "float32") -> Any:
        return torch.tensor(data, dtype=getattr(torch, dtype), device=self._device, requires_grad=requires_grad)

    def as_subclass(self, tensor: Any) -> Any:
        return tensor.as_subclass(PlainTensor)

    # operations
    def neg_view(self, tensor: Any) -> Any:
        view = torch._neg_view  # noqa: SLF001  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        return view(tensor)  # no public API sets the negative bit on a real tensor

    def custom_function(self, forward: Hook, backward: Hook, **options: bool) -> Hook:
        if options.pop("once_differentiable", False):
            backward = once_differentiable(backward)
        members = {"forward": staticmethod(forward), "backward": staticmethod(backward), **options}
        return type("Custom", (torch.autograd.Function,), members).apply

    # running
    def backward(self, root: Any, gradient: Any = None, *, inputs: Sequence[Any] | None = None, **how: Any) -> None:
        root.backward(gradient, inputs=inputs, **how)

    def backward_from_edge(self, edge: Any, gradient: Any = None) -> None:
        torch.autograd.backward(edge, gradient)

    def grad(self, outputs: Any, inputs: Sequence[Any], grad_outputs: Any = None, **how: Any) -> tuple[Any, ...]:
        return torch.autograd.grad(outputs, inputs, grad_outputs, **how)

    func_grad = staticmethod(torch.func.grad)
    func_vjp = staticmethod(torch.func.vjp)
    vmap = staticmethod(torch.func.vmap)

    def is_node(self, value: Any) -> bool:
        return isinstance(value, torch.autograd.graph.Node)

    # saved tensors
    set_checkpoint_early_stop = staticmethod(checkpoints.set_checkpoint_early_stop)
    set_checkpoint_debug_enabled = staticmethod(checkpoints.set_checkpoint_debug_enabled)
    checkpoint_sequential = staticmethod(checkpoints.checkpoint_sequential)

    def checkpoint(self, fn: Hook, *inputs: Any, **how: Any) -> Any:
        early = nullcontext()
        if "early_stop" in how and not EARLY_STOP_OPTION:
            early = checkpoints.set_checkpoint_early_stop(how.pop("early_stop"))
        with early:
            return checkpoints.checkpoint(fn, *inputs, **how)

    def graph_exec_group(self) -> AbstractContextManager[Any]:
        return checkpoints.GraphExecGroup()

    def create_selective_checkpoint_contexts(self, policy: Any, **options: bool) -> Any:
        if not callable(policy):
            named = [getattr(getattr(torch.ops.aten, name, None), "default", name) for name in policy]
            return checkpoints.create_selective_checkpoint_contexts(named, **options)

        def chosen(ctx: Any, operation: Any, *_: Any, **__: Any) -> Any:
            name = operation.name().partition("::")[2].partition(".")[0]
            return getattr(checkpoints.CheckpointPolicy, str(policy(ctx, name)))

        return checkpoints.create_selective_checkpoint_contexts(chosen, **options)

    # random numbers and autocast
    manual_seed = staticmethod(torch.manual_seed)
    rand_like = staticmethod(torch.rand_like)

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self._device.type, torch.bfloat16)

    def is_autocast_enabled(self) -> bool:
        return torch.is_autocast_enabled(self._device.type)

    def saved_tensors(self, node: Any) -> list[Any]:
        if "saved_tensors" in dir(node):  # a custom Function; hasattr would unpack the tensors once more
            return list(node.saved_tensors)
        return [getattr(node, name.removeprefix("_raw")) for name in _raw_names(node)]

    def raw_saved_tensors(self, node: Any) -> list[Any]:
        if "_raw_saved_tensors" in dir(node):  # a custom Function has them in one tuple
            return list(node._raw_saved_tensors)  # noqa: SLF001 - there is no public API
        return [getattr(node, name) for name in _raw_names(node)]

    # the rest
    def memory_allocated(self) -> int:
        return torch.accelerator.memory_allocated(self._device)

    def data_parallel(self, module: Any) -> Hook:
        return _data_parallel.data_parallel(module, self._device)

    def replica_count(self) -> int:
        return _data_parallel.replica_count(self._device)


def _not_in_this_version() -> dict[Capability, str]:
    """Return the capabilities that came with later versions of torch, each with the reason."""
    policy = getattr(checkpoints, "CheckpointPolicy", None)
    missing = {
        Capability.EDGE_ROOTS: "" if EDGE_ROOTS else "runs backward from tensors only",
        Capability.GRAPH_EXEC_GROUP: "" if hasattr(checkpoints, "GraphExecGroup") else "has no GraphExecGroup",
        Capability.SELECTIVE_CHECKPOINT: "" if policy else "has no selective checkpoints",
        Capability.SELECTIVE_OFFLOAD: "" if hasattr(policy, "MUST_CPU_OFFLOAD") else "has no policy that offloads",
        Capability.INIT_SYNC: "" if _distributed.INIT_SYNC_OPTION else "always syncs when a module is distributed",
        Capability.GLOBAL_HOOK_KWARGS: ""
        if "with_kwargs" in signature(modules.register_module_forward_hook).parameters
        else "has global forward hooks without with_kwargs",
    }
    return {capability: f"torch {torch.__version__} {why}" for capability, why in missing.items() if why}


def _raw_names(node: Any) -> list[str]:
    return [name for name in dir(node) if name.startswith("_raw_saved_") and not _is_empty(node, name)]


def _is_empty(node: Any, name: str) -> bool:
    raw = getattr(node, name)
    return raw is None or isinstance(raw, tuple)


def driver_of(text: str) -> str:
    """Return the version of NVIDIA's driver from the text of /proc/driver/nvidia/version."""
    found = re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)", text)
    return found[1] if found else "unknown"


def _hardware(device: Any) -> dict[str, str]:
    if device.type == "xla":
        return {"torch_xla": version("torch_xla")}
    if device.type != "cuda":
        return {}
    module = Path("/proc/driver/nvidia/version")
    driver = driver_of(module.read_text(encoding="utf-8") if module.exists() else "")
    return {"gpu": torch.cuda.get_device_name(device), "cuda": str(torch.version.cuda), "driver": driver}
