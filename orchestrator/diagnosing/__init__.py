"""Why a server died, from its logs or from a run, for whoever asks by hand."""
