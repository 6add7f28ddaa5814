import heapq

import torch


def extend(scores, log_probs, width):
    cells = [
        (float(scores[b] + log_probs[b, v]), b, v)
        for b in range(log_probs.shape[0])
        for v in range(log_probs.shape[1])
    ]
    best = heapq.nlargest(width, cells)
    return tuple(torch.tensor(column) for column in zip(*best))


def search(next_log_probs, *, width, eos, max_new, alpha):
    beam = {(): 0.0}
    for _ in range(max_new):
        rivals = {}
        for text, score in beam.items():
            if text and text[-1] == eos:
                rivals[text] = score
                continue
            for token, log_prob in enumerate(next_log_probs(list(text)).tolist()):
                rivals[(*text, token)] = score + log_prob
        beam = dict(heapq.nlargest(width, rivals.items(), key=lambda item: item[1]))
    text = max(beam, key=lambda t: beam[t] / len(t) ** alpha)
    return list(text), torch.tensor(beam[text])
