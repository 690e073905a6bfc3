"""torch with one hook verb broken in each: what a run must not let pass."""

from hooklaw_backends.torch_eager import TorchEager


class Handle:
    """A handle that removes nothing."""

    def remove(self):
        """Do nothing."""


class DropsTensorHooks(TorchEager):
    """register_hook forgets the hook."""

    def register_hook(self, tensor, hook):
        super().register_hook(tensor, lambda _: None)
        return Handle()


class OneShotTensorHooks(TorchEager):
    """A hook fires in the first backward only."""

    def register_hook(self, tensor, hook):
        fired = []
        return super().register_hook(tensor, lambda grad: None if fired else (fired.append(1), hook(grad))[1])


class IgnoresReplacement(TorchEager):
    """What a hook returns is dropped."""

    def register_hook(self, tensor, hook):
        return super().register_hook(tensor, lambda grad: (hook(grad), None)[1])


class HandleDoesNotRemove(TorchEager):
    """handle.remove() does nothing."""

    def register_hook(self, tensor, hook):
        super().register_hook(tensor, hook)
        return Handle()


class SwallowsExceptions(TorchEager):
    """An exception in a hook disappears."""

    def register_hook(self, tensor, hook):
        def quiet(grad):
            try:
                return hook(grad)
            except Exception:  # noqa: BLE001 - that is the vice
                return None

        return super().register_hook(tensor, quiet)


class RetainGradDoesNothing(TorchEager):
    """retain_grad keeps no gradient."""

    def retain_grad(self, tensor):
        """Do nothing."""


class PostAccumulateTooEarly(TorchEager):
    """A post-accumulate hook runs before accumulation, as a tensor hook."""

    def register_post_accumulate_grad_hook(self, tensor, hook):
        super().register_post_accumulate_grad_hook(tensor, lambda _: None)
        return super().register_hook(tensor, lambda _: (hook(tensor), None)[1])


class NodePrehookIgnored(TorchEager):
    """A Node pre-hook sees the gradients and changes nothing."""

    def node_register_prehook(self, node, hook):
        return super().node_register_prehook(node, lambda grads: (hook(grads), None)[1])


class NodeHookSwapsArguments(TorchEager):
    """A Node post-hook gets its two arguments in the wrong order."""

    def node_register_hook(self, node, hook):
        return super().node_register_hook(node, lambda inputs, outputs: hook(outputs, inputs))


class UnpackIsNotUsed(TorchEager):
    """The packed object is kept, the original is used."""

    def saved_tensors_hooks(self, pack, unpack):
        return super().saved_tensors_hooks(lambda tensor: (pack(tensor), tensor.detach()), lambda both: both[1])


class UnpacksOnce(TorchEager):
    """What unpack returned is kept for the next access."""

    def saved_tensors_hooks(self, pack, unpack):
        def remember(cell):
            if "tensor" not in cell:
                cell["tensor"] = unpack(cell["packed"])
            return cell["tensor"]

        return super().saved_tensors_hooks(lambda tensor: {"packed": pack(tensor)}, remember)


class LosesStrides(TorchEager):
    """Packed tensors come back contiguous."""

    def saved_tensors_hooks(self, pack, unpack):
        return super().saved_tensors_hooks(lambda tensor: pack(tensor.contiguous()), unpack)


class DisablingIsIgnored(TorchEager):
    """disable_saved_tensors_hooks forbids nothing."""

    def disable_saved_tensors_hooks(self, message):
        return self.enable_grad()


class ModuleHooksRunOnce(TorchEager):
    """A forward hook fires for the first call, or the first replica, only."""

    def register_forward_hook(self, module, hook, **options):
        fired = []
        once = lambda *args: None if fired else (fired.append(1), hook(*args))[1]  # noqa: E731
        return super().register_forward_hook(module, once, **options)


VICES = {
    made.__name__: made
    for made in list(globals().values())
    if isinstance(made, type) and issubclass(made, TorchEager) and made is not TorchEager
}


def __getattr__(name):
    """Name each as a backend: ``vices:drops_tensor_hooks``."""
    for vice, made in VICES.items():
        if name.replace("_", "") == vice.lower():
            return lambda _argument="": made(name=f"vices:{name}")
    raise AttributeError(name)
