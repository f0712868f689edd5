"""The report of a run, section by section; of a night with its verdict first."""
