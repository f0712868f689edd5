"""From a scenario to trials: which, how long, in which order, and how each is launched."""
