"""The skills shipped with the distribution; content, read by path."""
