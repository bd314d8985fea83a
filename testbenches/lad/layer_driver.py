"""What leads a decoder layer through a tile: it carries numbers to and fro, and computes none."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.arith.float_values import codes
from golden.lad.decoder_layer import LayerWeights
from hdl.lad.lad_parameters import LadParameters
from hdl.lad.sfm.sfm_parameters import Function
from testbenches.lad.linear.tb_linear_module import Task, task_payloads
from testbenches.packing import from_integers, pack, to_integers, unpack

Codes = NDArray[np.uint16]


def drawn_weights(p: LadParameters, rng: np.random.Generator, *, heads: int) -> LayerWeights:
    """Return the weights of a layer as wide as the norms, with one key/value head."""
    width, size = p.sfm.width, p.vector.head_size
    middle = 3 * size

    def matrix(rows: int, columns: int, scale: float = 1.0) -> Codes:
        return codes(scale * rng.standard_normal((rows, columns)) / np.sqrt(columns))

    return LayerWeights(
        input_norm=codes(rng.uniform(0.5, 1.5, width)),
        post_norm=codes(rng.uniform(0.5, 1.5, width)),
        query=matrix(heads * size, width, size**-0.5),
        key=matrix(size, width),
        value=matrix(size, width),
        output=matrix(width, heads * size),
        gate=matrix(middle, width),
        up=matrix(middle, width),
        down=matrix(width, middle),
        epsilon=int(codes(1e-5)),
    )


class LayerDriver:
    """A tile's streams, used one after the other as a layer needs them.

    Parameters
    ----------
    bench : LadBench
        The tile and its streams.
    """

    def __init__(self, bench: Any) -> None:
        self.tile, self.p = bench, bench.p
        self.length = 0

    async def layer(self, w: LayerWeights, state: Codes, cosine: Codes, sine: Codes) -> Codes:
        """Return a token's hidden state behind the layer."""
        size = self.p.vector.head_size
        normed = await self._special(Function.RMS_NORM, state, w.input_norm, w.epsilon)
        queries, keys, vectors = [
            (await self._linear(matrix, normed)).reshape(-1, size)
            for matrix in (w.query, w.key, w.value)
        ]
        angles = np.concatenate([cosine, sine])
        queries, keys = [
            [await self._special(Function.ROTARY, head, angles) for head in heads]
            for heads in (queries, keys)
        ]
        attended = await self._attend(queries, keys, list(vectors))
        state = await self._add(state, await self._linear(w.output, attended))
        normed = await self._special(Function.RMS_NORM, state, w.post_norm, w.epsilon)
        gate, up = [
            (await self._linear(matrix, normed)).reshape(-1, size) for matrix in (w.gate, w.up)
        ]
        activated = [
            await self._special(Function.SILU, one, other)
            for one, other in zip(gate, up, strict=True)
        ]
        return await self._add(state, await self._linear(w.down, np.concatenate(activated)))

    async def _add(self, state: Codes, change: Codes) -> Codes:
        size = self.p.vector.head_size
        parts = zip(state.reshape(-1, size), change.reshape(-1, size), strict=True)
        return np.concatenate([await self._special(Function.ADD, *part) for part in parts])

    async def _special(self, function: Function, x: Codes, other: Codes, epsilon: int = 0) -> Codes:
        """Return a row or vector behind the special function module."""
        p = self.p.sfm
        size = p.vector.head_size
        slices = x.reshape(-1, size)
        fields = {
            "values": slices,
            "function": np.full(len(slices), function.value),
            "epsilon": np.full(len(slices), epsilon),
        }
        name = "addends" if function is Function.ADD else "factors"
        packed = pack(p.values_layout, {"values": other.reshape(-1, size)})
        self.tile.functions[name].send(to_integers(packed))
        self.tile.functions["vectors"].send(to_integers(pack(p.vector_layout, fields)))
        got = await self._received(self.tile.results, p.values_layout, len(slices))
        return got["values"].reshape(-1).astype(np.uint16)

    async def _linear(self, matrix: Codes, x: Codes) -> Codes:
        """Return a projection of a row."""
        task, p = Task(matrix, x[np.newaxis]), self.p.linear
        payloads = task_payloads(p, task, self.tile.bench.numpy_rng)
        for name, source in self.tile.linear.items():
            source.send(payloads[name])
        got = await self._received(self.tile.sums, p.output_layout, task.outputs(p))
        return got["sums"].reshape(-1)[: len(matrix)].astype(np.uint16)

    async def _attend(self, queries: list[Codes], keys: list[Codes], vectors: list[Codes]) -> Codes:
        """Return the heads' outputs, side by side."""
        self.length += 1
        shared = len(queries) // len(keys)
        for head, query in enumerate(queries):
            group = head // shared
            self.tile.send_step(head, self.length, query, keys[group], vectors[group])
        got = await self._received(self.tile.outputs, self.p.output_layout, len(queries))
        return got["values"].reshape(-1).astype(np.uint16)

    async def _received(self, sink: Any, layout: Any, count: int) -> Any:
        """Wait for some payloads of a stream, and return them."""
        before = len(sink.received)
        await self.tile.bench.run(until=lambda: len(sink.received) == before + count)
        payloads = [payload for _cycle, payload in sink.received[before:]]
        return unpack(layout, from_integers(payloads, layout.size))
