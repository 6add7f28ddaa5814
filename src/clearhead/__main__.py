"""`python -P -m clearhead` is the same as `clearhead`, for torchrun and for doubtful PATHs. Without
-P (for torchrun: PYTHONSAFEPATH=1), Python runs modules of the current folder."""

import sys

from clearhead.cli import main

sys.exit(main())
