"""Edits of a trace, such as `ch.edit.zero("*.heads")`: they replace activations, and name them."""

from clearhead.inspection.edits import add, change, multiply, put, zero
from clearhead.inspection.sites import names

__all__ = ["add", "change", "multiply", "names", "put", "zero"]
