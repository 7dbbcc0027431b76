"""The error that deciding where kernels run may raise.

It has a module of its own so that it can be imported, and caught, before anything is decided.
"""

__all__ = ["TargetError"]


class TargetError(RuntimeError):
    """The device that was asked for cannot be had here; the message says why and what to do."""
