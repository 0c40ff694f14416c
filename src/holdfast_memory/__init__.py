"""The distribution `holdfast-memory`: its name, and the entry point of its command.

`holdfast` on the package index is another project with an import package of the same name. Installing it next to this
one replaces `holdfast/__init__.py`; removing it again deletes that file. These modules are in a package of their own,
so that the command can still say so.
"""
