"""A config that was measured, as what serves it: a command, a unit, containers."""
