"""Links: where PyTorch's reference shows a docstring, which has a page of its own or is part of another page."""

DOCS = "https://docs.pytorch.org/docs/stable/"
ABSENT = (
    "torch.utils.hooks.",
    "torch.utils.checkpoint.set_checkpoint_early_stop",
    "torch.utils.checkpoint.GraphExecGroup",
)
"""Beginnings of names that no page of the reference lists."""
PAGES = {
    "torch.autograd.Function": "autograd",
    "torch.autograd.detect_anomaly": "autograd",
    "torch.autograd.graph": "autograd",
    "torch.autograd.set_detect_anomaly": "autograd",
    "torch.distributed.GradBucket": "ddp_comm_hooks",
    "torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks": "ddp_comm_hooks",
    "torch.distributed.algorithms.ddp_comm_hooks.default_hooks": "ddp_comm_hooks",
    "torch.distributed.fsdp.FSDPModule": "distributed.fsdp.fully_shard",
    "torch.distributed.fsdp.FullyShardedDataParallel": "fsdp",
    "torch.distributed.fsdp.fully_shard": "distributed.fsdp.fully_shard",
    "torch.distributed.fsdp.register_fsdp_forward_method": "distributed.fsdp.fully_shard",
    "torch.distributed.tensor": "distributed.tensor",
    "torch.distributed.tensor.DTensor": "distributed.tensor",
    "torch.distributed.tensor.parallel": "distributed.tensor.parallel",
    "torch.nn.Module": "generated/torch.nn.Module",
    "torch.nn.parallel.DistributedDataParallel": "generated/torch.nn.parallel.DistributedDataParallel",
    "torch.optim.optimizer": "optim",
    "torch.utils.checkpoint": "checkpoint",
}
"""Objects, or the owners of objects, that a page includes itself."""
OWN_PAGE = ("torch.autograd.Function.", "torch.autograd.graph.Node.", "torch.autograd.graph.increment_version")
"""Beginnings of names that have a page of their own although `PAGES` names their owner."""


def page_url(name: str, anchor: str) -> str:
    """Return the address of a page of the reference, or of an anchor in it."""
    return f"{DOCS}{name}.html{f'#{anchor}' if anchor else ''}"


def docstring_url(name: str) -> str:
    """Return the address where the reference shows a docstring, or an empty string if it does not."""
    if name.startswith(ABSENT):
        return ""
    page = PAGES.get(name) or PAGES.get(name.rpartition(".")[0])
    if page is None or name.startswith(OWN_PAGE) or page.endswith(f"/{name}"):
        return page_url(f"generated/{name}", "")
    return page_url(page, name)
