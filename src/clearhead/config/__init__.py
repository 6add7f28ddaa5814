"""What a run is made of, as inert data: frozen, keyword-only, checked on construction."""

from clearhead.config.model import ModelConfig

__all__ = ["ModelConfig"]
