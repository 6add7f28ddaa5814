"""Ablations: a study compares arms over seeds, at an equal budget, with intervals.

study_file   a study as it is written: recipe, arms, seeds, budget, measures
workers      runs side by side, each a process with one thread
result_lines one line for each finished run, and what a table needs of it
statistics   intervals over seeds and sentences, and what difference would have been shown
comparing    every arm against the baseline
gradients    norms of gradients by layer, and how far they are apart
showing      the comparison as a table and a plot for a terminal
pages        the comparison as Markdown and SVG, in both languages
"""
