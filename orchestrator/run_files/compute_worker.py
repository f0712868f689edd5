"""A process of a ComputePool: tasks come in on standard input, results go out on standard output, until it is closed.

python -m orchestrator.run_files.compute_worker
"""

from __future__ import annotations

import os
import pickle
import sys


def main() -> None:
    """Answer until the end of the input."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever prints does not get between the answers
    while True:
        try:
            function, tasks = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump([function(task) for task in tasks], answers)
        answers.flush()


if __name__ == "__main__":
    main()
