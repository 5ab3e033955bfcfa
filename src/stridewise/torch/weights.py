"""Parameters as constants of programs: whether they are those that were packed, unchanged."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from stridewise.frontends.torch.library import submodule, torch
from stridewise.runtime.binding.library import load_core

__all__ = ["Mark", "Weights", "count_optimizer_steps", "repack"]


class _Epoch:
    """Counts changes of parameters that leave no other trace."""

    number = 0
    is_hooked = False

    @classmethod
    def advance(cls, *_: object) -> None:
        cls.number += 1


def count_optimizer_steps() -> None:
    """Notice the steps of all optimizers; fused ones change no version of a parameter."""
    if not _Epoch.is_hooked:
        _Epoch.is_hooked = True
        optimizer = submodule("torch.optim.optimizer")
        optimizer.register_optimizer_step_post_hook(_Epoch.advance)


def repack() -> None:
    """Pack all parameters anew at the next run of each compiled model.

    In-place operators, ``load_state_dict`` and optimizers are noticed without this. Writes through
    ``tensor.data`` or through NumPy arrays that share memory are not.
    """
    _Epoch.advance()


class Mark:
    """A tensor that was seen, known by its identity as long as its memory exists.

    The reference is to the memory: PyTorch refuses to exchange tensors that have references
    (``torch.utils.swap_tensors``). While the memory exists, another tensor of other memory may get
    the identity if the first one is gone.

    Attributes:
        identity: its ``id``.
    """

    def __init__(self, tensor: Any, died: Callable[[], None] | None = None) -> None:
        """Note a tensor.

        Args:
            tensor: of PyTorch.
            died: called when its memory is gone.
        """
        self.identity = id(tensor)

        def gone(_: object) -> None:
            if died is not None:
                died()

        self._memory = weakref.ref(_memory(tensor), gone)

    @property
    def is_alive(self) -> bool:
        """Whether its memory exists."""
        return self._memory() is not None

    def is_of(self, tensor: Any) -> bool:
        """Return whether it is this tensor, or another one that has its identity."""
        return self.identity == id(tensor) and self.is_alive

    def is_exactly(self, tensor: Any) -> bool:
        """Return whether it is this tensor, and has the same memory."""
        return self.is_of(tensor) and self._memory() is _memory(tensor)


def _memory(tensor: Any) -> Any:
    """Return an object that lives as long as the memory of a tensor."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # sparse ones, for example, have several
        return tensor


_MOST_COMPARED = 256 << 10
"""Bytes of the largest buffer whose content is compared; it takes some 10 microseconds."""


def _compared(tensor: Any) -> int:
    """Return how many bytes of a tensor are compared in each run.

    PyTorch's batch norms in training change running statistics, but not their versions.
    """
    is_buffer = not isinstance(tensor, torch.nn.Parameter) and tensor.is_floating_point()
    is_dense = tensor.device.type == "cpu" and tensor.is_contiguous()
    return tensor.nbytes if is_buffer and is_dense and tensor.nbytes <= _MOST_COMPARED else 0


class Weights:
    """The parameters among the arguments of a call, as they were then.

    They are compared by identity, version and address, small buffers also by content. As long as
    the memory of all of them exists, a tensor at other memory has another identity or address.
    """

    def __init__(self, args: Sequence[Any], positions: Sequence[int]) -> None:
        """Note the parameters.

        Args:
            args: of the call.
            positions: of the parameters. Inference tensors are left out: they have no version, and
                programs read them in each run.
        """
        self._epoch, self._is_alive = _Epoch.number, True
        watched = [at for at in positions if not args[at].is_inference()]
        compared = [_compared(args[at]) for at in watched]
        kind = torch.Tensor
        self._watch = load_core().TensorWatch(args, watched, compared, kind._version, kind.data_ptr)
        self._positions, self._are_watched = positions, bool(watched)
        own = weakref.ref(self)

        def died() -> None:
            weights = own()
            if weights is not None:
                weights._is_alive = False

        self.marks = [Mark(args[at], died) for at in positions]

    @property
    def is_alive(self) -> bool:
        """Whether all of the parameters exist."""
        return self._is_alive

    def holds(self, args: Sequence[Any]) -> bool:
        """Return whether the arguments of another call have the same parameters, unchanged."""
        if not self._is_alive:
            return False
        if not self._are_watched:
            return self.is_of(args)
        return self._epoch == _Epoch.number and self._watch.holds(args)

    def is_of(self, args: Sequence[Any]) -> bool:
        """Return whether the arguments have the same parameters, changed or not."""
        pairs = zip(self.marks, self._positions, strict=True)
        return all(mark.is_of(args[at]) for mark, at in pairs)
