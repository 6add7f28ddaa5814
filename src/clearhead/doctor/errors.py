"""The errors that users of the doctor see."""

from typing import TYPE_CHECKING

from .naming import IS_PART

if TYPE_CHECKING or not IS_PART:
    _Base = Exception
else:
    # Who catches clearhead's errors catches these too.
    from ..errors import ClearheadError as _Base

MAX_MESSAGE = 4000
"""The number of characters of a file from somebody else that a message may quote."""


class DoctorError(_Base):
    """Base of every error that the user can fix: a model that cannot be opened or called, a check
    or a setting that does not exist. If the doctor is a part of clearhead, this is a
    `ClearheadError`."""

    def __init__(self, message: str = "") -> None:
        text = str(message)
        super().__init__(text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]} […]")
