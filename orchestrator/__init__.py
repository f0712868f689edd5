"""The driver of Specsweep: reads a scenario, sweeps it over GPU slots, ranks what was measured."""

__version__ = "0.1.0"

# Version of every file that a run leaves behind; raised when a reader of the old files would go wrong.
SCHEMA_VERSION = 1
