def merge_pair(tokens, pair):
    return " ".join(tokens).replace(" ".join(pair), "".join(pair)).split(" ")
