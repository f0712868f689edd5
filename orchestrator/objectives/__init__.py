"""What is best: what an objective looks at, expressions, cost."""
