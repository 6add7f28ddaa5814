def merge_pair(tokens, pair):
    done = []
    fresh = False
    for token in tokens:
        if done and not fresh and (done[-1], token) == pair:
            done[-1] += token
            fresh = True
        else:
            done.append(token)
            fresh = False
    return done
