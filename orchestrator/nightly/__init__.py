"""`specsweep nightly`: the run of one night, and what it leaves."""
