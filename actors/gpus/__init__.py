"""GPUs of this host: what sits where, whose memory it is, what they draw."""
