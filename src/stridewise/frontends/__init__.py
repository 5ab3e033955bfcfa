"""Front ends: from a model in some form to a :class:`~stridewise.graph.Graph`.

``source.py`` has the protocols, ``registry.py`` the list of front ends. Each front end is a module
or folder of its own, and the rest of Stridewise knows only the protocols.
"""
