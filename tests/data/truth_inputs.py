"""Inputs of the recorded truth (tests/data/truth.py), made by a rule, so that no file has to be kept; standard library only.

Numbers come from the generator of Numerical Recipes, s <- 1664525 s + 1013904223 mod 2^32, from s = 1; a draw is s >> 16,
16 bits, so that all values here are exact in f32.
  images   a sample: its label is a draw mod 10; a pixel is a draw / 2^17, and half more in the rows whose number times 10
           over the height, rounded down, is the label
  tokens   a sample: the first token is a draw mod V, each further one is 3 times the last, and 7, and a draw mod 4, mod V;
           inputs are all but the last, labels all but the first
  mixed    a sample: 13 numbers, a draw / 2^15 - 1; 4 indices, a draw mod 10; the label is 1 where the first number is positive
"""
import struct

V = 65		# vocabulary
T = 16		# tokens in a sample


class Draw:
    def __init__(self):
        self.s = 1

    def __call__(self):
        self.s = (1664525 * self.s + 1013904223) & 0xffffffff
        return self.s >> 16


def images(n, height, width):
    """[(name, format character, shape, numbers)] of n images of one channel, and of their labels."""
    draw, x, y = Draw(), [], []
    for _ in range(n):
        y.append(draw() % 10)
        for row in range(height):
            lit = .5 if row * 10 // height == y[-1] else 0.
            x += [draw() / 131072. + lit for _ in range(width)]
    return [('in0', 'f', (n, 1, height, width), x), ('label', 'q', (n,), y)]


def tokens(n):
    draw, x, y = Draw(), [], []
    for _ in range(n):
        row = [draw() % V]
        for _ in range(T):
            row.append((3 * row[-1] + 7 + draw() % 4) % V)
        x += row[:-1]
        y += row[1:]
    return [('in0', 'q', (n, T), x), ('label', 'q', (n, T), y)]


def mixed(n):
    draw, x, i, y = Draw(), [], [], []
    for _ in range(n):
        row = [draw() / 32768. - 1 for _ in range(13)]
        x += row
        i += [draw() % 10 for _ in range(4)]
        y.append(float(row[0] > 0))
    return [('in0', 'f', (n, 13), x), ('in1', 'q', (n, 4), i), ('label', 'f', (n,), y)]


def inputs(kind, n):
    """By the word that truth.json has: tokens, mixed, or images of HEIGHTxWIDTH."""
    if kind == 'tokens':
        return tokens(n)
    if kind == 'mixed':
        return mixed(n)
    return images(n, *map(int, kind.split('x')))


def write(folder, kind, n):
    """FOLDER/NAME.npy of each; the paths, labels last."""
    paths = []
    for name, code, shape, data in inputs(kind, n):
        head = "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }" % ({'f': '<f4', 'q': '<i8'}[code], ''.join('%d,' % d for d in shape))
        head += ' ' * (63 - (10 + len(head)) % 64) + '\n'
        paths.append('%s/%s.npy' % (folder, name))
        with open(paths[-1], 'wb') as f:
            f.write(b'\x93NUMPY\1\0' + struct.pack('<H', len(head)) + head.encode() + struct.pack('<%d%s' % (len(data), code), *data))
    return paths
