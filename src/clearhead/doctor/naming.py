"""The names of this package, which is a part of clearhead and also a distribution of its own."""

PACKAGE = __name__.rpartition(".")[0]
"""What is imported: clearhead.doctor or transformer_doctor."""
IS_PART = "." in PACKAGE
"""True if it is a part of clearhead."""
COMMAND = PACKAGE.replace(".", " ") if IS_PART else PACKAGE.replace("_", "-")
"""What is typed: clearhead doctor or transformer-doctor."""
DISTRIBUTION = "clearhead" if IS_PART else COMMAND
"""What pip installs."""
TRANSFORMERS = "'clearhead[hf]'" if IS_PART else "transformers safetensors"
"""What pip installs to open folders of Hugging Face."""
