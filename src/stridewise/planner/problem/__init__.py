"""What there is to choose from: options of nodes, I/O formats, and the formulation of both."""
