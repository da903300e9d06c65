"""share/models/digits_cnn.onnx in plain Python: twice convolution (3 by 3), Relu, pooling (2 by 2), then dense, softmax cross-entropy.

A convolution is a dense layer whose rows are patches, one for each image and position."""
from digits_mlp import cross_entropy, dense, layers


def weights(path):
    return layers(path, ['0', '3', '7'])


def taps(size):
    """of each position, where its patch reads a channel: by tap, -1 outside"""
    return [[y * size + x if 0 <= y < size and 0 <= x < size else -1 for y in range(i - 1, i + 2) for x in range(j - 1, j + 2)]
            for i in range(size) for j in range(size)]


def patches(images, size):
    """images: lists of channels; a row for each image and position, taps within channels"""
    return [[c[t] if t >= 0 else 0.0 for c in image for t in at] for image in images for at in taps(size)]


def unpatched(rows, n_channels, size):
    """gradients of the images, of those of the patches"""
    images = []
    for k in range(0, len(rows), size * size):
        image = [[0.0] * (size * size) for _ in range(n_channels)]
        for row, at in zip(rows[k:], taps(size)):
            for i, v in enumerate(row):
                if at[i % 9] >= 0:
                    image[i // 9][at[i % 9]] += v
        images.append(image)
    return images


def pooled(rows, size):
    """of rows of a convolution's outputs after Relu: images of half the size, and where each number came from (row, channel)"""
    images, source = [], []
    for k in range(0, len(rows), size * size):
        image, came = [], []
        for c in range(len(rows[0])):
            best = [max((k + (i + y) * size + j + x for y in (0, 1) for x in (0, 1)), key=lambda r: (rows[r][c], -r))
                    for i in range(0, size, 2) for j in range(0, size, 2)]
            image.append([max(rows[r][c], 0.0) for r in best])
            came.append([(r, c) for r in best])
        images.append(image)
        source.append(came)
    return images, source


def unpooled(gradient, source, rows):
    back = [[0.0] * len(rows[0]) for _ in rows]
    for image, came in zip(gradient, source):
        for g, at in zip(image, came):
            for v, (r, c) in zip(g, at):
                back[r][c] = v if rows[r][c] > 0 else 0.0
    return back


def through(w, g):
    """the gradient of what went into a dense layer"""
    columns = list(zip(*w))
    return [[sum(p * q for p, q in zip(r, c)) for c in columns] for r in g]


def step(l0, l1, l2, rows, wanted):
    """the loss, and of each layer its rows and the gradient of what came out"""
    a0 = patches([[r] for r in rows], 8)
    y0 = dense(*l0, a0)
    p0, from0 = pooled(y0, 8)
    a1 = patches(p0, 4)
    y1 = dense(*l1, a1)
    p1, from1 = pooled(y1, 4)
    a2 = [[v for c in image for v in c] for image in p1]
    loss, g2 = cross_entropy(dense(*l2, a2), wanted)
    d1 = [[r[i:i + 4] for i in range(0, len(r), 4)] for r in through(l2[0], g2)]
    g1 = unpooled(d1, from1, y1)
    g0 = unpooled(unpatched(through(l1[0], g1), len(p0[0]), 4), from0, y0)
    return loss, [(a0, g0), (a1, g1), (a2, g2)]
