"""Models behind HTTP. Needs the extra `serve`."""
