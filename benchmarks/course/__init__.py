"""What the course shows: pictures, measured by `measure.py` and drawn by `pictures.py` in two
languages; code of the package in its pages; and how the exercises judge other people's answers.

python -m benchmarks.course                 draws all pictures from docs/pictures/course/data.json
python -m benchmarks.course measure         measures again what takes seconds
python -m benchmarks.course measure NAME…   measures these, also what trains or needs a corpus
                                            (copy, positions, one_sequence, worth, depths, kinds,
                                            learnt_by_heart)
python -m benchmarks.course code            writes the code of the package into the pages again
python -m benchmarks.course answers         counts wrong answers that fail, right ones that pass
"""
