"""`python -P -m clearhead` runs the command `clearhead`: use it with torchrun, or if the PATH may
be wrong. Without -P (with torchrun: PYTHONSAFEPATH=1), Python imports modules from the current
folder."""

import sys

from clearhead.cli import main

sys.exit(main())
