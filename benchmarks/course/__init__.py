"""The pictures of the course: measured by `measure.py`, drawn by `pictures.py` in two languages.

python -m benchmarks.course                 draws all pictures from docs/pictures/course/data.json
python -m benchmarks.course measure         measures again what takes seconds
python -m benchmarks.course measure NAME…   measures these, also what trains or needs a corpus
                                            (copy, positions, one_sequence, worth, depths, kinds)
"""
