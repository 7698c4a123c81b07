# SPDX-License-Identifier: Apache-2.0
"""`python -m jetson_specdec` is the command line."""

import sys

from jetson_specdec.cli import main

if __name__ == "__main__":
    sys.exit(main())
