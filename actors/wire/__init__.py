"""One request to a server and its answer: connections, HTTP, events, tokens, and the clock."""
