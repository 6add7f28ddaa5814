"""Serves models over HTTP. Needs the extra `serve`."""
