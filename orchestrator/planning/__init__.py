"""From a scenario to trials: how many, how long, in which order, and what is told before they start."""
