/**
 * One upload of 40 MB from a control plane's client to a node's gRPC server, through a relay on
 * loopback that holds every byte back for 1 ms each way, against the same relay that does not. The
 * node's pools are fakes: what is measured is the way there. Client, relay and node have a thread
 * each; rounds alternate.
 */
import { randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { NodeClient } from '../control-plane/core/nodes/fleet.ts';
import { openTestNode } from '../inference-node/serving/test/test-node.ts';
import { CHUNK_BYTES_MAX } from '../proto/contract/limits.ts';
import { at } from '../test/support/at.ts';
import { LongWire } from './long-wire.ts';
import { writeResults } from './results.ts';
import { median } from './service.ts';

const UPLOAD_BYTES = 40_000_000;
const DELAY_MS = 1;
const ROUNDS = 9;
const TOKEN = 'a-token-for-the-bench';

type Part = { readonly part: 'node' } | { readonly part: 'relay'; to: number; delayMs: number };

async function main(): Promise<void> {
  const image = randomBytes(UPLOAD_BYTES);
  const node = await start({ part: 'node' });
  const prompt = await start({ part: 'relay', to: node.port, delayMs: 0 });
  const delayed = await start({ part: 'relay', to: node.port, delayMs: DELAY_MS });
  const promptMs: number[] = [];
  const delayedMs: number[] = [];
  const roundTripMs: number[] = [];
  let underWayMaxBytes = 0;
  try {
    for (let round = 0; round <= ROUNDS; round += 1) {
      const [fast, slow] = [await upload(prompt.port, image), await upload(delayed.port, image)];
      roundTripMs.push(await roundTrip(delayed.port));
      // The first warms up.
      if (round === 0) continue;
      promptMs.push(fast);
      delayedMs.push(slow);
    }
    underWayMaxBytes = await new Promise<number>(resolve => {
      delayed.worker.once('message', resolve);
      delayed.worker.postMessage('under way');
    });
  } finally {
    for (const { worker } of [prompt, delayed, node]) await worker.terminate();
  }
  for (const values of [promptMs, delayedMs, roundTripMs]) values.sort((a, b) => a - b);
  writeResults('delayed-upload', {
    uploadMB: UPLOAD_BYTES / 1e6,
    delayEachWayMs: DELAY_MS,
    roundTripMedianMs: median(roundTripMs),
    promptMedianMs: median(promptMs),
    delayedMedianMs: median(delayedMs),
    ratio: median(delayedMs) / median(promptMs),
    // What other work on the machine disturbed least.
    promptLeastMs: promptMs[0],
    delayedLeastMs: delayedMs[0],
    ratioOfLeast: at(delayedMs, 0) / at(promptMs, 0),
    ratioWanted: 3,
    // Does not depend on the machine's load: http2's own window would keep it at 64 KiB.
    underWayMaxKiB: underWayMaxBytes / 1024,
  });
}

async function upload(port: number, image: Buffer): Promise<number> {
  const client = new NodeClient(`127.0.0.1:${port}`, () => TOKEN);
  try {
    // A control plane's channel is open long before an image comes.
    await client.getNodeInfo();
    const startedMs = performance.now();
    const outcome = await client.matte({
      jobId: 'bench',
      attempt: 1,
      inputBytes: image.length,
      inputFormat: 'png',
      width: 6000,
      height: 4000,
      outputFormat: 'png',
      sync: true,
      openInput: async () => Readable.from(pieces(image), { objectMode: false }),
      sink: { write: async () => undefined },
      signal: new AbortController().signal,
      timeoutMs: 60_000,
    });
    if (outcome.kind !== 'done') throw new Error(`the upload ended: ${JSON.stringify(outcome)}`);
    return performance.now() - startedMs;
  } finally {
    client.close();
  }
}

function* pieces(image: Buffer): Generator<Buffer> {
  for (let at = 0; at < image.length; at += CHUNK_BYTES_MAX) {
    yield image.subarray(at, at + CHUNK_BYTES_MAX);
  }
}

/** Time of one small call: what the relay's delay really is. */
async function roundTrip(port: number): Promise<number> {
  const client = new NodeClient(`127.0.0.1:${port}`, () => TOKEN);
  await client.getNodeInfo();
  const startedMs = performance.now();
  await client.getNodeInfo();
  client.close();
  return performance.now() - startedMs;
}

async function start(workerData: Part): Promise<{ worker: Worker; port: number }> {
  const worker = new Worker(new URL(import.meta.url), { workerData });
  const port = await new Promise<number>((resolve, reject) => {
    worker.once('message', resolve).once('error', reject);
  });
  return { worker, port };
}

async function serveNode(): Promise<number> {
  const node = await openTestNode({ token: TOKEN });
  return Number(node.address.split(':')[1]);
}

async function serveRelay(to: number, delayMs: number): Promise<number> {
  const wire = await LongWire.open(to, delayMs);
  parentPort?.on('message', () => parentPort?.postMessage(wire.underWayMaxBytes));
  return wire.port;
}

if (isMainThread) {
  await main();
} else {
  const part = workerData as Part;
  const port = part.part === 'node' ? await serveNode() : await serveRelay(part.to, part.delayMs);
  parentPort?.postMessage(port);
}
