import math

import torch


def chances(logits, *, temperature, top_k, top_p):
    rows = []
    for row in logits.tolist():
        order = sorted(range(len(row)), key=lambda i: -row[i])
        if temperature == 0:
            order, weight = order[:1], {order[0]: 1.0}
        else:
            order = order[: top_k or len(order)]
            weight = {i: math.exp((row[i] - row[order[0]]) / temperature) for i in order}
        whole, kept, mass = sum(weight.values()), [], 0.0
        for i in order:
            if kept and mass >= top_p * whole and top_p < 1:
                break
            kept.append(i)
            mass += weight[i]
        rows.append([weight[i] / mass if i in kept else 0.0 for i in range(len(row))])
    return torch.tensor(rows)


def draw(probabilities, u):
    ids = []
    for row, number in zip(probabilities.tolist(), u.tolist()):
        left = number * math.fsum(row)
        for i, p in enumerate(row):
            left -= p
            if p > 0:
                last = i
                if left < 0:
                    break
        ids.append(last)
    return torch.tensor(ids)
