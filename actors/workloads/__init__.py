"""What is sent: texts, lengths, sessions, traces."""
