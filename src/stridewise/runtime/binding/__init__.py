"""From the data of a program to native objects: the library, primitives, packed weights, steps."""
