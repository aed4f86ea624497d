"""Models on the Hugging Face Hub: only the bytes that are asked for are read.

Loaded when a Hub name is opened, not before. From the bottom up: `ranges` is arithmetic; `connection` is one exchange
with a server; `download` repeats exchanges until the bytes are there; `extents` keeps them on disk; `ranged_file` is a
remote file made of all that; `listing` says which files a revision has; `hub_files` is the `TensorStore`.
"""
