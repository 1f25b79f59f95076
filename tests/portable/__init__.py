"""A package, so that its files may have names that other folders have too."""
