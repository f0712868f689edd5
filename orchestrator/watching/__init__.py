"""What a run is doing: as lines, as a table, as a file, and for browsers."""
