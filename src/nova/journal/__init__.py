"""Durability: a controller whose acknowledged events survive `kill -9` at any byte.

From the bottom up: `frames` (how bytes are framed and checked), `files` (what makes a file durable), `lock` (one
writer), `journal` (segments of frames), `snapshot` (a controller as one file), `store` (the folder that holds them
all). Nothing but `snapshot` and `store` loads numeric libraries.
"""
