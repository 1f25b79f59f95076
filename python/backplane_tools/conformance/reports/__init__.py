"""A run's results as a terminal's text, JSON, JUnit XML and HTML."""
