"""Makes what the course shows: pictures, measured by `measure.py` and drawn by `pictures.py` in two
languages; and code of the package in its pages.

python -m tools.course                 draws all pictures from docs/pictures/course/data.json
python -m tools.course measure         measures again what takes seconds
python -m tools.course measure NAME…   measures these, also what trains or needs a corpus
                                       (copy, positions, one_sequence, worth, depths, kinds,
                                       joined, learnt_by_heart)
python -m tools.course code            writes the code of the package into the pages again
"""
