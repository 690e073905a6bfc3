"""Facts about a running program, which decide what is specified and what is worth a look."""

from dataclasses import dataclass, field


@dataclass(eq=False)
class Facts:
    """Names of tensors and modules by what happened to them, and what has happened at all."""

    views: set[str] = field(default_factory=set[str])
    """Tensors that were made as views."""
    handed: set[str] = field(default_factory=set[str])
    """Tensors that modules returned, which may be views of their inputs."""
    shared: set[str] = field(default_factory=set[str])
    """Gradients, views of them, and views of what did not require grad: they may share storage unseen."""
    taken: set[str] = field(default_factory=set[str])
    """Gradients that leaves have accumulated, under names of their own."""
    owned: set[str] = field(default_factory=set[str])
    """Leaves that have the layout of another tensor, or whose gradients have."""
    passes: int = 0
    """How many backward passes are running, nested in each other."""
    created: bool = False
    """Whether a pass was run with create_graph=True."""
    nests: bool = False
    """Whether a region runs a pass of its own: if such a pass fails, torch keeps its ready nodes for a while."""
    changed: bool = False
    """Whether anything was changed in place."""
    parameters: set[str] = field(default_factory=set[str])
    """Tensors that belong to modules."""
    functions: dict[str, str] = field(default_factory=dict[str, str])
    """What each module computes."""
    hooked: set[str] = field(default_factory=set[str])
    """Modules that have had hooks."""
    mutable: bool = False
    """Whether a context was entered that allows in-place changes of saved tensors: it keeps some of them alive."""
    replicated: bool = False
    """Whether a module was called in replicas: what these save, when and how, is unspecified."""
    skipped: set[int] = field(default_factory=set[int])
    """Skipped instructions: a name is missing, or the behaviour is unspecified."""
    consumed: set[str] = field(default_factory=set[str])
    """Tensors that other tensors were computed from."""
    frozen: set[str] = field(default_factory=set[str])
    """Those of them that were then told not to require grad."""
    savers: set[str] = field(default_factory=set[str])
    """Tensors whose nodes have saved their inputs or themselves, until anything is changed in place."""
    inferred: set[str] = field(default_factory=set[str])
    """Tensors that were made in inference mode, and views of them."""
