"""What 0.2 called `decode_for_page`: its guide imports `subject_of` from here. Ends with 0.4."""

import warnings

from clearhead.inspection.decode_for_page import subject_of as subject_of

warnings.warn(
    "clearhead.inspection.seeing ends with version 0.4; "
    "import from clearhead.inspection.decode_for_page",
    DeprecationWarning,
    stacklevel=2,
)
