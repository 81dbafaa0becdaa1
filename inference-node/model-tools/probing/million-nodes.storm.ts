/** Protobuf that costs a runtime minutes and gigabytes. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ModelError } from '@matting/serving/models/model-error.ts';
import { ElementType, encodeModel, integers, nodeOf } from '@matting/serving/onnx/graph.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import test from 'ava';
import { probeGraph } from './probe-graph.ts';
import { NO_NORMALISATION } from './probe-types.ts';

const NODES = 1_000_000;
const LIMITS = { timeoutMs: 60_000, memoryMaxBytes: 2 * 1024 ** 3 };
const BEAT_MS = 100;
const FACTS = { normalisation: NO_NORMALISATION, activation: 'none' } as const;

test('a million nodes end within the bounds, and the program continues', async t => {
  t.timeout(3 * LIMITS.timeoutMs);
  const file = join(await temporaryFolder(t), 'million.onnx');
  await writeFile(file, encodeChain(NODES));
  let beats = 0;
  const heart = setInterval(() => beats++, BEAT_MS);
  const startMs = performance.now();
  const end = await probeGraph(file, FACTS, LIMITS).catch((error: unknown) => error);
  const tookMs = performance.now() - startMs;
  clearInterval(heart);
  t.log(`${Math.round(tookMs / 1000)} s: ${end instanceof Error ? end.message : 'it works'}`);
  t.true(!(end instanceof Error) || end instanceof ModelError, String(end));
  t.true(beats > tookMs / BEAT_MS / 4, `${beats} beats in ${tookMs} ms`);
});

/** Sigmoids in a chain, in a second piece of the graph: protobuf joins the pieces. */
function encodeChain(nodes: number): Buffer {
  const value = (name: string, channels: number) => {
    return { name, elementType: ElementType.float32, dims: [1, channels, 16, 16] };
  };
  const ends = encodeModel({
    ...{ irVersion: 8, opsets: [{ domain: '', version: 17 }], initialisers: new Map() },
    nodes: [
      nodeOf('ReduceMean', ['x'], 'v0', [integers('axes', [1])]),
      nodeOf('Identity', [`v${nodes}`], 'alpha'),
    ],
    ...{ inputs: [value('x', 3)], outputs: [value('alpha', 1)] },
  });
  const chain = Array.from({ length: nodes }, (_, at) =>
    field(1, field(1, `v${at}`), field(2, `v${at + 1}`), field(4, 'Sigmoid')),
  );
  return Buffer.concat([...ends, field(7, Buffer.concat(chain))]);
}

function field(number: number, ...parts: readonly (string | Buffer)[]): Buffer {
  const bytes = Buffer.concat(parts.map(part => Buffer.from(part)));
  const head = [(number << 3) | 2];
  let left = bytes.length;
  for (; left > 127; left = Math.floor(left / 128)) head.push((left % 128) + 128);
  return Buffer.concat([Buffer.from([...head, left]), bytes]);
}
