"""`python -m orchestrator` is `specsweep`: what `ray job submit` runs."""

from orchestrator.cli import main

if __name__ == "__main__":
    main(prog_name="specsweep")
