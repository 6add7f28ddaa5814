def search(next_log_probs, *, width, eos, max_new, alpha):
    beam = [(0.0, ())]
    for _ in range(max_new):
        rivals = []
        for score, text in beam:
            for token, log_prob in enumerate(next_log_probs(text).tolist()):
                rivals.append((score + log_prob, (*text, token)))
        beam = sorted(rivals, reverse=True)[:width]
        done = [
            (score / len(text) ** alpha, score, text) for score, text in beam if text[-1] == eos
        ]
        if done:
            _, score, text = max(done)
            return text, score
    score, text = max(beam, key=lambda each: each[0] / len(each[1]) ** alpha)
    return text, score
