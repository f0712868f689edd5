"""Two builds in pairs: verdicts, noise, evidence. Values and rules only."""
