"""A plan as a document: JSON, plan files, text, drawings and annotated graphs."""
