def merge_pair(tokens, pair):
    out = []
    for i in range(len(tokens)):
        if i + 1 < len(tokens) and tokens[i] == pair[0] and tokens[i + 1] == pair[1]:
            out.append(pair[0] + pair[1])
        else:
            out.append(tokens[i])
    return out
