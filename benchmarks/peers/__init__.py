"""Holdfast next to other memory systems: how much evidence is in a prompt of the same size, and what it costs.

Every system gets the same messages and the same vectors, and is asked the bare question. Its passages are taken in its
order as long as they fit, in the frame and with the headers of Holdfast's own block, and all of that is charged. A
piece of evidence is found if its text is in the block.
"""
