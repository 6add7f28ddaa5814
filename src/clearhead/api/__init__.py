"""The functions of `import clearhead`. They take text and paths, and return text and objects that
you can inspect. The command line calls the same functions, with the same defaults."""
