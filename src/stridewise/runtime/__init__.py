"""Running plans: the native library, programs and their execution."""
