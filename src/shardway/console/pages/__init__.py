"""The pages of the console, by subject. Each module has its routes at its end."""
