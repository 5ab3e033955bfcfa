"""The backend of ``torch.compile`` in the places where programs use modules in unusual ways."""

from __future__ import annotations

import copy
import threading

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra [torch])")

from torch.nn.utils import parametrizations  # noqa: E402

from .compiled_modules import Net, close, compiled, image, same  # noqa: E402

F = torch.nn.functional
# The tests are about results, not about changes of PyTorch to come or about what PyTorch computes.
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",
    "ignore::FutureWarning",
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning",
    "ignore::stridewise.torch.FallbackWarning",
)


@pytest.mark.parametrize("shared", [True, False])
def test_first_calls_of_several_threads_at_once(shared):
    models = [Net().eval()] * 4 if shared else [Net().eval() for _ in range(4)]
    fast = [compiled(models[0])] * 4 if shared else [compiled(model) for model in models]
    images = [[image(batch) for batch in (1, 2, 4, 3)] for _ in models]
    barrier, found = threading.Barrier(4), [[] for _ in models]

    def call(at):
        barrier.wait()
        # Both, so that threads compile different graphs.
        with torch.no_grad() if at % 2 else torch.inference_mode():
            found[at].extend(fast[at](x) for x in images[at])

    threads = [threading.Thread(target=call, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with torch.no_grad():
        for model, xs, ys in zip(models, images, found, strict=True):
            for x, y in zip(xs, ys, strict=True):
                close(y, model(x))


class _Features(torch.utils.data.Dataset):
    """Images that have passed a compiled module, in the workers."""

    def __init__(self, model):
        self.model = model

    def __len__(self):
        return 4

    def __getitem__(self, index):
        x = torch.full((1, 3, 11, 11), float(index))
        with torch.no_grad():
            return self.model(x)[0]


@pytest.mark.parametrize("called", [False, True])
def test_workers_of_loaders_call_it(called):
    model = Net().eval()
    fast = compiled(model)
    if called:
        same(fast, model, image(1))
    loaded = [
        list(torch.utils.data.DataLoader(_Features(net), 2, num_workers=1, timeout=60))
        for net in (fast, model)
    ]
    for found, wanted in zip(*loaded, strict=True):
        close(found, wanted)


def test_functions_of_parameters():
    model, x = Net().eval(), image()
    parameters = {name: 1.5 * value.detach() for name, value in model.named_parameters()}

    def call(given, images):
        return torch.func.functional_call(model, given, (images,))

    def loss(given, images):
        return call(given, images).square().sum()

    with torch.no_grad():
        close(compiled(call)(parameters, x), call(parameters, x))
        several = torch.stack([x, 2 * x, x - 1])
        fast = compiled(torch.func.vmap(model), fallback="eager")
        close(fast(several), torch.func.vmap(model)(several))
        close(torch.func.vmap(compiled(model))(several), torch.func.vmap(model)(several))
    wanted = torch.func.grad(loss)(parameters, x)
    options = {"fallback": "eager"}
    for function in (
        compiled(torch.func.grad(loss), **options),
        torch.func.grad(compiled(loss, **options)),
    ):
        found = function(parameters, x)
        for name, gradient in wanted.items():
            assert torch.allclose(found[name], gradient, rtol=1e-3, atol=1e-4)


def test_modules_in_modules_are_compiled_already():
    model, x = Net().eval(), image()
    inner = compiled(model)
    same(compiled(inner), model, x)
    same(compiled(lambda x: inner(x) + 1), lambda x: model(x) + 1, x)
    same(torch.compile(lambda x: inner(x) + 1, backend="eager"), lambda x: model(x) + 1, x)


def test_hooks_of_all_kinds():
    model = Net().eval()
    model.first.register_forward_pre_hook(lambda _, args: (1.5 * args[0],))
    model.norm.register_forward_hook(lambda _, args, result: result + args[0])
    model.norm.register_full_backward_hook(lambda _, given, __: (3 * given[0],))
    model.last.register_full_backward_pre_hook(lambda _, results: (2 * results[0],))
    model.first.weight.register_hook(lambda gradient: 7 * gradient)
    fast, x = compiled(model, fallback="eager"), image()
    same(fast, model, x)
    copies = [x.clone().requires_grad_() for _ in range(3)]
    gradients = []
    kept = torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone)
    for net, given, around in zip((model, fast, fast), copies, (None, None, kept), strict=True):
        model.zero_grad()
        if around is None:
            net(given).sum().backward()
        else:
            with around:
                net(given).sum().backward()
        gradients.append([given.grad, *(p.grad.clone() for p in model.parameters())])
    for wanted, *found in zip(*gradients, strict=True):
        for gradient in found:
            assert torch.allclose(gradient, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_parametrized_weights(kind, training):
    model = torch.nn.Sequential(kind(torch.nn.Conv2d(3, 8, 3)), torch.nn.ReLU()).train(training)
    twin = copy.deepcopy(model)
    fast = compiled(model, fallback="eager")
    for _ in range(2):
        x = image()
        with torch.no_grad():
            close(fast(x), twin(x))  # each moves its own vectors of spectral norms
            for net in (model, twin):
                for parameter in net.parameters():
                    parameter.mul_(1.5)
        for found, wanted in zip(model.buffers(), twin.buffers(), strict=True):
            close(found, wanted)
    for net in (fast, twin):
        net(x).square().sum().backward()
    for found, wanted in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(found.grad, wanted.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_parts_of_complex_tensors(mode):
    z = torch.randn(2, 3, 9, 9, dtype=torch.complex64)
    conv = torch.nn.Conv2d(3, 4, 3)
    fast = compiled(conv, fallback="eager")
    with mode():
        negated = z.conj().imag
        assert negated.is_neg()
        for x in (z.real, negated, z.imag, negated):
            close(fast(x), conv(x))
        function = compiled(lambda z: F.relu((z * z.conj()).real + z.abs()), fallback="eager")
        for given in (z, z.conj()):
            close(function(given), F.relu((given * given.conj()).real + given.abs()))


@pytest.mark.parametrize("default", [torch.float64, torch.float16])
def test_another_default_type_of_floats(default):
    model = Net().eval()
    fast = compiled(model)
    same(fast, model, image())
    narrow = compiled(lambda x: F.relu(x) * 0.3 + x.mean())
    given = [image(), image(3)]
    try:
        torch.set_default_dtype(default)
        for x in given:
            same(fast, model, x)
            same(narrow, lambda x: F.relu(x) * 0.3 + x.mean(), x)
    finally:
        torch.set_default_dtype(torch.float32)


def test_extents_that_the_program_marks():
    model = Net().eval()
    for dynamic in (True, False, None):
        torch._dynamo.reset()
        options = {"fallback": "error"}
        fast = torch.compile(model, backend="stridewise", dynamic=dynamic, options=options)
        for batch, side in ((2, 11), (1, 11), (0, 11), (3, 8)):
            same(fast, model, image(batch, side))
    for mark in (torch._dynamo.mark_dynamic, torch._dynamo.maybe_mark_dynamic):
        torch._dynamo.reset()
        fast, x = compiled(model), image(4)
        mark(x, 0)
        same(fast, model, x)
        same(fast, model, image(7))


@pytest.mark.parametrize("training", [False, True])
def test_assertions_on_what_tensors_hold(training):
    def checked(x, at):
        torch._assert_async((x > -9).all(), "x must be above -9")
        return (x * 2).relu() + F.one_hot(at, 5)

    fast = compiled(checked)
    x, at = image(1).requires_grad_(training), torch.zeros(image(1).shape[:3], dtype=torch.int64)
    x = x[..., :5].detach().requires_grad_(training)
    for _ in range(2):
        close(fast(x, at), checked(x, at))
        with pytest.raises(RuntimeError, match="above -9"):
            fast(x - 20, at)
        with pytest.raises(RuntimeError, match="smaller than num_classes"):
            fast(x, at + 5)
