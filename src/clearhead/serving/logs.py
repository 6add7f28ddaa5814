"""Writes the logs of a server: one JSON object per line on standard error. Texts and keys are never
logged."""

import json
import logging
import sys
import time

LOGGER = "clearhead.serving"


class JsonLines(logging.Formatter):
    """Formats a record as one line. The values of `extra={"fields": …}` are part of the object."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record. JSON escapes line ends, so that no text can forge a second line."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "process": record.process,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def log_as_json(level: str) -> None:
    """Make clearhead and uvicorn log as JSON in this process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("clearhead", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level.upper())
    # uvicorn warns about forms that cannot be read; these are refused, and counted with the others.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
