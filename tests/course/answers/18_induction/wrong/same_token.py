def induction_scores(weights, period):
    return weights.diagonal(-period, 2, 3).mean((0, 2))
