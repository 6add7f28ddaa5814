"""`python -m clearhead` is the same as `clearhead`, for torchrun and for doubtful PATHs."""

import sys

from clearhead.cli import main

sys.exit(main())
