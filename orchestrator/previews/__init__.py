"""What is told of a run before anything is started: its trials, memory and time, and what they cannot tell."""
