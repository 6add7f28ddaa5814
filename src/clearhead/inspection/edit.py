"""Edits of a trace, as `ch.edit.zero("*.heads")`: what is put in place of activations, and the
names that they have."""

from clearhead.inspection.edits import add, change, multiply, put, zero
from clearhead.inspection.sites import names

__all__ = ["add", "change", "multiply", "names", "put", "zero"]
