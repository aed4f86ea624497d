"""The script that trains the demo model inside the package; not part of the package itself."""
