"""The names of this package, which is a part of clearhead and also a distribution of its own."""

PACKAGE = __name__.rpartition(".")[0]
"""The name to import: clearhead.doctor or transformer_doctor."""
IS_PART = "." in PACKAGE
"""True if this package is a part of clearhead."""
COMMAND = PACKAGE.replace(".", " ") if IS_PART else PACKAGE.replace("_", "-")
"""The command to type: clearhead doctor or transformer-doctor."""
DISTRIBUTION = "clearhead" if IS_PART else COMMAND
"""The name with which pip installs this package."""
TRANSFORMERS = "'clearhead[hf]'" if IS_PART else "transformers safetensors"
"""The name with which pip installs support for folders of Hugging Face."""
