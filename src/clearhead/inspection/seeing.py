"""The name of `decode_for_page` in version 0.2, from whose guide people import `subject_of`. It
ends with version 0.4."""

import warnings

from clearhead.inspection.decode_for_page import subject_of as subject_of

warnings.warn(
    "clearhead.inspection.seeing ends with version 0.4; "
    "import from clearhead.inspection.decode_for_page",
    DeprecationWarning,
    stacklevel=2,
)
