#!/usr/bin/env python3
"""Records how PyTorch trains: small networks of our own, exported to tests/data/truth/NAME/, and those of share/models.

usage: python3 tests/data/truth.py [NAME...]      with torch >= 2.6, onnx and onnxscript; some seconds

The results are kept in the repository; a test needs no PyTorch. Random numbers are seeded, so that a second run of the same
PyTorch writes the same losses. For each model
  default.onnx       torch.onnx.export(model.train(), inputs, file), and nothing else: the batch is fixed at 4
  dynamic.onnx       the same with dynamic_shapes for the batch
  legacy.onnx        the exporter of before: dynamo=False, opset 17, training=TRAINING
  eval.onnx, preserve.onnx, loss.onnx      see VARIANTS
  state.safetensors  the state_dict
and in tests/data/truth/truth.json a member each:
  batch, steps       `steps` steps of `batch` samples in order
  inputs             which; tests/data/truth_inputs.py makes them
  loss               ce: mean cross-entropy, over all labels; bce: with logits, mean
  parameters         [name, shape, requires_grad]; n_parameters: elements of those that are trained
  batchnorm          it has BatchNorm, by statistics of each micro-batch
  sgd, adamw         losses in f32; _f64: in f64; _m2: of a step whose samples came in two micro-batches, which is another
                     loss only where there is BatchNorm. The rules' numbers are in `rules`, beside the models
  gradients          f64, at the first step: of each parameter [l2 norm] and, of up to 64 elements, all of them
  outputs            of the first two samples, with the first weights, f32: [shape, numbers]; without BatchNorm
Notes with paths of the machine that exported are cut out of the files.
"""
import json, os, struct, sys, warnings

import onnx
import torch
from torch import nn
from torch.nn import functional as F

here = os.path.dirname(os.path.abspath(__file__))
shipped = os.path.join(here, '../../share/models')
sys.dont_write_bytecode = True
sys.path[:0] = [here, shipped]
import make_models
from truth_inputs import T, V, inputs

OUT = os.path.join(here, 'truth')
STEPS = 8
RULES = {'sgd': dict(lr=.05, momentum=.9), 'adamw': dict(lr=.001, weight_decay=.01)}


class Attention(nn.Module):
    """Causal, four heads, one weight for queries, keys and values: Radford et al., 2019."""

    def __init__(self, width):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer('mask', torch.tril(torch.ones(T, T)).view(1, 1, T, T) == 0, persistent=False)

    def forward(self, x):
        q, k, v = (p.view(-1, T, 4, x.shape[2] // 4).transpose(1, 2) for p in self.c_attn(x).split(x.shape[2], 2))
        a = (q @ k.transpose(2, 3)) / (x.shape[2] // 4) ** .5
        a = a.masked_fill(self.mask, float('-inf')).softmax(3)
        return self.c_proj((a @ v).transpose(1, 2).reshape(-1, T, x.shape[2]))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ln_1, self.attn, self.ln_2, self.mlp = nn.LayerNorm(width), Attention(width), nn.LayerNorm(width), Mlp(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    """A GPT-2; the last layer has the weight of the table of words."""

    def __init__(self, layers=2, width=32):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, width), nn.Embedding(T, width)
        self.h = nn.ModuleList(Block(width) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, V, bias=False)
        for m in self.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)):
                nn.init.normal_(m.weight, std=.08)
        self.lm_head.weight = self.wte.weight
        self.register_buffer('at', torch.arange(T), persistent=False)

    def forward(self, x):
        x = self.wte(x) + self.wpe(self.at)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(V, 24), nn.LSTM(24, 32, batch_first=True), nn.Linear(32, V)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


class Encoder(nn.Module):
    """Four layers as BERT's, with dropout; the words' layer at the end."""

    def __init__(self, dropout=.1, width=8, layers=4):
        super().__init__()
        self.emb, self.pos = nn.Embedding(V, width), nn.Parameter(torch.randn(T, width) * .1)
        self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 4, 2 * width, dropout, 'gelu', batch_first=True), layers,
                                         enable_nested_tensor=False)
        self.out = nn.Linear(width, V)
        for p in self.enc.parameters():		# the encoder deep-copies its layers: give each its own weights
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)

    def forward(self, x):
        return self.out(self.enc(self.emb(x) + self.pos))


class Vit(nn.Module):
    """Patches of 4x4 of 8x8, a class token, two blocks of attention without mask."""

    def __init__(self, width=16):
        super().__init__()
        self.conv_proj = nn.Conv2d(1, width, 4, 4)
        self.class_token, self.pos = nn.Parameter(torch.randn(1, 1, width) * .1), nn.Parameter(torch.randn(1, 5, width) * .1)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, 4, 2 * width, 0., 'gelu', batch_first=True, norm_first=True)
                                    for _ in range(2))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.conv_proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], 1) + self.pos
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, 0])


class Residual(nn.Module):
    """Convolution, BatchNorm, residual. BatchNorm comes after the Relu: after a convolution today's exporter would multiply
    it into the weights."""

    def __init__(self):
        super().__init__()
        self.stem, self.bn0 = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv1, self.bn1 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16)
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        x = self.bn0(F.relu(self.stem(x)))
        x = x + self.bn1(F.relu(self.conv1(x)))
        x = self.bn2(F.relu(self.conv2(x)))
        return self.fc(x.mean((2, 3)))


class Folded(nn.Module):
    """BatchNorm after convolutions, two of each of the same shape: exports for inference fold and merge."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(x + self.bn2(self.conv2(x)))
        return self.fc(x.mean((2, 3)))


class Experts(nn.Module):
    """A mixture of four experts, the two best of each sample: Shazeer et al., ICLR 2017, without noise."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(64, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)) for _ in range(4))

    def forward(self, x):
        x = x.flatten(1)
        best, at = self.gate(x).topk(2)
        weight = torch.zeros(x.shape[0], 4, dtype=x.dtype).scatter(1, at, best.softmax(1))
        return sum(weight[:, i:i + 1] * e(x) for i, e in enumerate(self.experts))


class Ranker(nn.Module):
    """Dense and sparse features and their products, as DLRM: Naumov et al., 2019."""

    def __init__(self):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(13, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.tables = nn.ModuleList(nn.Embedding(10, 8) for _ in range(4))
        self.top = nn.Sequential(nn.Linear(8 + 25, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, dense, idx):
        x = self.bottom(dense)
        z = torch.stack([x] + [t(idx[:, i]) for i, t in enumerate(self.tables)], 1)
        return self.top(torch.cat([x, (z @ z.transpose(1, 2)).flatten(1)], 1)).squeeze(1)


# name: (module, inputs, batch, loss, files, whether training is recorded)
MODELS = {
    'gpt': (Gpt, 'tokens', 4, 'ce', ['default', 'legacy', 'loss'], True),
    'residual': (Residual, '8x8', 8, 'ce', ['default', 'legacy'], True),
    'lstm': (Lstm, 'tokens', 4, 'ce', ['default'], True),
    'vit': (Vit, '8x8', 8, 'ce', ['default', 'dynamic'], True),
    'experts': (Experts, '8x8', 8, 'ce', ['default', 'legacy'], True),
    'ranker': (Ranker, 'mixed', 8, 'bce', ['default', 'legacy'], True),
    'encoder': (Encoder, 'tokens', 4, 'ce', ['legacy'], False),		# dropout: no two frameworks draw the same masks
    'folded': (Folded, '8x8', 8, 'ce', ['eval', 'preserve', 'legacy'], True),
    'digits_mlp': (make_models.digits_mlp, '8x8', 8, 'ce', [], True),
    'digits_cnn': (make_models.digits_cnn, '8x8', 8, 'ce', [], True),
    'lenet5': (make_models.lenet5, '28x28', 8, 'ce', [], True),
    'resnet8': (make_models.ResNet8, '28x28', 8, 'ce', [], True),
}


class WithLoss(nn.Module):
    """The model as member m, its loss as its output: names begin with m."""

    def __init__(self, m):
        super().__init__()
        self.m = m

    def forward(self, x, y):
        return F.cross_entropy(self.m(x).flatten(0, -2), y.flatten())


def batches(kind, batch, dtype):
    """[[inputs..., labels] of each step]"""
    all_inputs = []
    for _, code, shape, data in inputs(kind, batch * STEPS):
        all_inputs.append(torch.tensor(data, dtype=torch.int64 if code == 'q' else dtype).view(shape).split(batch))
    return list(zip(*all_inputs))


def loss_of(model, loss, part):
    *x, y = part
    p = model(*x)
    if loss == 'bce':
        return F.binary_cross_entropy_with_logits(p, y)
    return F.cross_entropy(p.flatten(0, -2), y.flatten())


def train(fresh, rule, dtype, micro, steps, loss):
    """Losses, and the gradients of the first step."""
    model = fresh().to(dtype).train()
    make = torch.optim.SGD if rule == 'sgd' else torch.optim.AdamW
    optimizer = make(model.parameters(), **RULES[rule])
    losses, gradients = [], None
    for step in steps:
        optimizer.zero_grad()
        total = 0
        for part in zip(*(t.chunk(micro) for t in step)):
            value = loss_of(model, loss, part) / micro
            value.backward()
            total += value.item()
        losses.append(total)
        if gradients is None:
            gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
        optimizer.step()
    return losses, gradients


def clean(path):
    """One file without the notes that name this machine's paths."""
    model = onnx.load(path)
    for graph in [model.graph] + list(model.functions):
        nodes = graph.node
        for node in nodes:
            node.ClearField('doc_string')
            keep = [p for p in node.metadata_props if p.key != 'pkg.torch.onnx.stack_trace']
            del node.metadata_props[:]
            node.metadata_props.extend(keep)
    onnx.save(model, path)
    if os.path.exists(path + '.data'):
        os.remove(path + '.data')
    onnx.checker.check_model(path)
    assert os.path.getsize(path) < 150000, (path, os.path.getsize(path))


def export(model, variant, example, path, names):
    """VARIANTS: eval and preserve are for inference, the second with TrainingMode.PRESERVE; loss has the labels as an input, the
    loss as its output, and names that begin with /m."""
    older = dict(dynamo=False, opset_version=17)
    batch = dict(input_names=names, dynamic_axes={name: {0: 'batch'} for name in names})
    training = dict(training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)
    model.train(variant not in ('eval', 'preserve'))
    *x, y = example
    if variant == 'default':
        torch.onnx.export(model, tuple(x), path)
    elif variant == 'dynamic':
        torch.onnx.export(model, tuple(x), path, dynamic_shapes=tuple({0: torch.export.Dim('batch')} for _ in x))
    elif variant == 'legacy':
        torch.onnx.export(model, tuple(x), path, **older, **batch, **training)
    elif variant == 'eval':
        torch.onnx.export(model, tuple(x), path, **older, **batch)
    elif variant == 'preserve':
        torch.onnx.export(model, tuple(x), path, **older, **batch, training=torch.onnx.TrainingMode.PRESERVE)
    elif variant == 'loss':
        whole = WithLoss(model).train()
        batch = dict(input_names=['x', 'y'], output_names=['loss'], dynamic_axes={'x': {0: 'batch'}, 'y': {0: 'batch'}})
        torch.onnx.export(whole, (*x, y), path, **older, **batch, **training)


def safetensors(path, state):
    """The format of Hugging Face: length, JSON header, data."""
    head, data = {}, b''
    for name, t in state.items():
        raw = t.contiguous().numpy().tobytes()
        head[name] = {'dtype': {torch.float32: 'F32', torch.int64: 'I64'}[t.dtype], 'shape': list(t.shape),
                      'data_offsets': [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + data)


def fresh_model(name):
    """The model with its first weights: seeded, or those of the shipped file."""
    torch.manual_seed(1)
    model = MODELS[name][0]()
    if not MODELS[name][4]:
        weights = {t.name: torch.tensor(onnx.numpy_helper.to_array(t)) for t in onnx.load('%s/%s.onnx' % (shipped, name)).graph.initializer}
        missing = model.load_state_dict({k: v for k, v in weights.items() if k in model.state_dict()}, strict=False).missing_keys
        assert all(key.endswith('num_batches_tracked') for key in missing), missing
    return model


def record(name):
    _, kind, batch, loss, files, trained = MODELS[name]
    folder = os.path.join(OUT, name)
    model = fresh_model(name)
    if files:
        os.makedirs(folder, exist_ok=True)
        safetensors(folder + '/state.safetensors', model.state_dict())
    example = [t[:4] for t in batches(kind, batch, torch.float32)[0]]
    names = ['dense', 'idx'] if kind == 'mixed' else ['x']
    for variant in files:
        path = '%s/%s.onnx' % (folder, variant)
        export(fresh_model(name), variant, example, path, names)
        clean(path)
        print(path[len(OUT) + 1:], os.path.getsize(path))
    truth = {'batch': batch, 'steps': STEPS, 'inputs': kind, 'loss': loss,
             'batchnorm': any(isinstance(m, nn.BatchNorm2d) for m in model.modules()),
             'parameters': [[n, list(p.shape), p.requires_grad] for n, p in model.named_parameters()],
             'n_parameters': sum(p.numel() for p in model.parameters())}
    if not trained:
        return truth
    if 'legacy' in files + ['legacy'] * (not files) and not truth['batchnorm']:
        with torch.no_grad():
            y = fresh_model(name)(*[t[:2] for t in batches(kind, batch, torch.float32)[0][:-1]])
        truth['outputs'] = [list(y.shape), [float('%.9g' % v) for v in y.flatten().tolist()]]	# 9 digits hold an f32
    for rule in RULES:
        for dtype, suffix in ((torch.float32, ''), (torch.float64, '_f64')):
            for micro in (1, 2):
                losses, gradients = train(lambda: fresh_model(name), rule, dtype, micro, batches(kind, batch, dtype), loss)
                truth[rule + suffix + ('_m2' if micro == 2 else '')] = losses
                if rule == 'sgd' and suffix and micro == 1:
                    truth['gradients'] = {n: [g.norm().item()] + ([g.flatten().tolist()] if g.numel() <= 64 else [])
                                          for n, g in gradients.items()}
    return truth


def write(truth):
    """A line a member: readable, and a change is a short diff."""
    with open(OUT + '/truth.json', 'w') as f:
        f.write('{\n"torch": %s,\n"rules": %s,\n"models": {' % (json.dumps(torch.__version__.split('+')[0]), json.dumps(RULES)))
        for i, (name, t) in enumerate(truth.items()):
            f.write('%s\n"%s": {\n' % (',' if i else '', name))
            f.write(',\n'.join(' "%s": %s' % (k, json.dumps(v)) for k, v in t.items()) + '\n}')
        f.write('\n}\n}\n')


if __name__ == '__main__':
    warnings.simplefilter('ignore')
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    old = OUT + '/truth.json'
    truth = json.load(open(old))['models'] if os.path.exists(old) and sys.argv[1:] else {}
    for name in sys.argv[1:] or MODELS:
        truth[name] = record(name)
    write({name: truth[name] for name in MODELS if name in truth})
