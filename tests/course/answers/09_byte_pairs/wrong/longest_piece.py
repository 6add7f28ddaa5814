def encode_word(word, merges):
    pieces = sorted({a + b for a, b in merges}, key=len, reverse=True)
    tokens = []
    while word:
        piece = next((p for p in pieces if word.startswith(p)), word[0])
        tokens.append(piece)
        word = word[len(piece) :]
    return tokens
