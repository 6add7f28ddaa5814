"""What `import clearhead` offers: each function takes text and paths, and gives text and objects
that can be looked into. The command line calls these functions, and has their defaults."""
