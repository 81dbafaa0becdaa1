/** A Matte call that is served, and who is admitted. */
import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { status } from '@grpc/grpc-js';
import { pino } from 'pino';
import { CHUNK_BYTES_MAX } from '#contract/limits.ts';
import {
  type GetNodeInfoResponse,
  OutputFormat,
  Priority,
  ResultKind,
  Switch,
} from '#gen/matting/v1/matte_service.ts';
import { FakeEnginePool, StageGates, TINY_MODEL } from './fake-pools.ts';
import {
  chunk,
  header,
  MatteCaller,
  openTestNode,
  sha256,
  type TestNode,
  type TestNodeOptions,
  untilNothingAdmitted,
} from './test-node.ts';

let node: TestNode;

async function reopen(options: TestNodeOptions): Promise<void> {
  await node.close();
  node = await openTestNode(options);
}

beforeEach(async () => {
  node = await openTestNode();
});

afterEach(async () => {
  await node.close();
});

describe('a good call', () => {
  it('gets its messages in order, and a result whose digest is right', async () => {
    node.pictures.result = Buffer.alloc(2 * CHUNK_BYTES_MAX + 3, 7);
    const caller = await new MatteCaller(node).sendFile('12345', { sha256: sha256('12345') });
    assert.equal(await caller.ended, undefined);
    assert.deepEqual(caller.kinds(), ['admitted', 'progress', 'resultHeader', 'chunk', 'done']);
    const { header: result, file } = caller.result();
    assert.ok(file.equals(node.pictures.result));
    assert.equal(result?.sizeBytes, file.length);
    assert.equal(result?.contentType, 'image/png');
    assert.deepEqual([result?.width, result?.height], [8, 6]);
    assert.equal(result?.resultKind, ResultKind.RESULT_KIND_CUTOUT);
    assert.equal(result?.modelRuns[0]?.executionProvider, 'cpu');
    assert.equal(result?.modelRuns[0]?.precision, 'fp32');
    assert.equal(result?.modelRuns[0]?.precisionFallback, '');
    const done = await caller.until('done');
    assert.ok(done.sha256.equals(sha256(file)));
    const { workerWaitMs, decodeMs, engineWaitMs, inferMs, refineMs, encodeMs } = done.timings!;
    assert.deepEqual(
      [workerWaitMs, decodeMs, engineWaitMs, inferMs, refineMs, encodeMs],
      [3, 4, 1, 2, 5, 6],
    );
  });

  it('hands format, kind, size and priority on', async () => {
    const caller = await new MatteCaller(node).sendFile('12345', {
      outputFormat: OutputFormat.OUTPUT_FORMAT_WEBP,
      resultKind: ResultKind.RESULT_KIND_MASK,
      priority: Priority.PRIORITY_SYNC,
      model: 'tiny',
    });
    assert.equal(await caller.ended, undefined);
    assert.equal(node.pictures.finished[0]?.outputFormat, 'webp');
    assert.equal(node.pictures.finished[0]?.resultKind, 'mask');
    assert.deepEqual(node.pictures.decoded[0]?.declared, { width: 8, height: 6 });
    assert.equal(node.engines.runs[0]?.priority, 'sync');
  });

  it('is refined and recoloured as the header says, else as the operator does', async () => {
    const SWITCHES = { refinement: Switch.SWITCH_OFF, foregroundEstimation: Switch.SWITCH_OFF };
    for (const header of [
      SWITCHES,
      { ...SWITCHES, plan: 'tiny', refinement: Switch.SWITCH_ON },
      {},
    ]) {
      const caller = await new MatteCaller(node).sendFile('12345', header);
      assert.equal(await caller.ended, undefined);
    }
    assert.deepEqual(
      node.pictures.finished.map(({ refinement, foregroundEstimation }) => [
        refinement,
        foregroundEstimation,
      ]),
      [
        [false, false],
        [true, false],
        [true, true],
      ],
    );
  });

  it('for a model runs that alone, also where the plan has its name', async () => {
    const opinion = {
      model: { ...TINY_MODEL, model: 'second' },
      engines: new FakeEnginePool(new StageGates()),
      role: 'opinion',
    } as const;
    await reopen({ opinion });
    const caller = await new MatteCaller(node).sendFile('12345', { model: 'tiny' });
    assert.equal(await caller.ended, undefined);
    const names = caller.result().header?.modelRuns.map(({ model }) => model);
    assert.deepEqual(names, ['tiny']);
  });

  it('names the model that its plan had to do without, in the result and in the metrics', async () => {
    const engines = new FakeEnginePool(new StageGates());
    engines.set({ enginesReady: 0 });
    // The subject's model at another size: its name alone would not tell.
    const opinion = {
      model: { ...TINY_MODEL, inputWidth: 6, inputHeight: 8 },
      engines,
      role: 'secondLook',
    } as const;
    const lines: { msg: string; missing?: object[] }[] = [];
    const log = pino({}, { write: line => void lines.push(JSON.parse(line)) });
    await reopen({ opinion, log });
    const caller = await new MatteCaller(node).sendFile('12345');
    assert.equal(await caller.ended, undefined);
    const { header: result } = caller.result();
    assert.deepEqual(result?.modelsMissing, ['tiny']);
    assert.deepEqual(result?.runsMissing, [
      { model: 'tiny', inputWidth: 6, inputHeight: 8, role: 'second_look' },
    ]);
    assert.deepEqual(
      result?.modelRuns.map(({ model }) => model),
      ['tiny'],
    );
    const degraded = node.metrics.registry.getSingleMetric('matting_node_images_degraded_total');
    const { values } = await degraded!.get();
    const labels = { model: 'tiny', input_size: '6x8', role: 'second_look' };
    assert.deepEqual(values, [{ labels, value: 1 }]);
    const told = lines.filter(({ missing }) => missing !== undefined);
    assert.deepEqual(
      told.map(({ msg, missing }) => [msg, missing]),
      [['served without a model of the plan', [labels]]],
    );
  });

  it('of unknown size is declared as nothing and takes the largest permit', async () => {
    node.gates.hold('decode');
    const caller = await new MatteCaller(node).sendFile('12345', { width: 0, height: 0 });
    await node.gates.reached('decode');
    assert.ok(node.admission.snapshot().megapixels >= 100);
    assert.equal(node.pictures.decoded[0]?.declared, undefined);
    node.gates.letGo('decode');
    assert.equal(await caller.ended, undefined);
  });

  it('gives its worker back before its result is read', async () => {
    // More than both http2 windows hold, to a caller who reads nothing.
    node.pictures.result = Buffer.alloc(24 * 1024 * 1024, 1);
    const caller = new MatteCaller(node);
    caller.call.pause();
    caller.send(header({ contentLength: 5 }), chunk('12345')).call.end();
    while (node.pictures.releases === 0) await new Promise(resolve => setImmediate(resolve));
    assert.equal(node.pictures.leasesOut, 0);
    assert.equal(node.admission.snapshot().images, 1);
    assert.equal(node.pipeline.imagesAt('sending'), 1);
    caller.call.resume();
    assert.equal(await caller.ended, undefined);
    assert.equal(caller.result().file.length, node.pictures.result.length);
    await untilNothingAdmitted(node);
  });

  it('whose reader takes it too slowly for its size is cut off', async () => {
    await reopen({ bounds: { sendSilenceMaxMs: 500, paceBytesPerSecondMin: 1_000_000_000 } });
    node.pictures.result = Buffer.alloc(32 * 1024 * 1024, 1);
    const caller = new MatteCaller(node);
    // A chunk of 128 at a time, each far sooner than silence is over.
    caller.call.on('data', () => {
      caller.call.pause();
      setTimeout(() => caller.call.resume(), 20);
    });
    caller.send(header({ contentLength: 5 }), chunk('12345')).call.end();
    assert.equal((await caller.failure()).code, 'CALL_DEADLINE_EXCEEDED');
    await untilNothingAdmitted(node);
  });

  it('whose reader takes nothing is cut off', async () => {
    await reopen({ bounds: { sendSilenceMaxMs: 60 } });
    node.pictures.result = Buffer.alloc(24 * 1024 * 1024, 1);
    const caller = new MatteCaller(node);
    caller.call.pause();
    caller.send(header({ contentLength: 5 }), chunk('12345')).call.end();
    // What has been stays true: the sending may be over before it is looked for.
    while (node.pictures.releases === 0) await new Promise(r => setImmediate(r));
    await node.matte.untilIdle();
    assert.equal(node.admission.snapshot().images, 0);
    const sent = await node.metrics.registry
      .getSingleMetric('matting_node_sent_bytes_total')!
      .get();
    // Handed out is at most what fits between the two: the rest waited in the result itself.
    assert.ok((sent.values[0]?.value ?? Infinity) < node.pictures.result.length / 2);
    caller.call.resume();
    assert.equal((await caller.failure()).code, 'CALL_DEADLINE_EXCEEDED');
  });
});

function nodeInfo(): Promise<GetNodeInfoResponse> {
  return new Promise((resolve, reject) => {
    node.client.getNodeInfo({}, (error, found) => (error ? reject(error) : resolve(found)));
  });
}

it('a result says when the node fell back to another precision, and why', async () => {
  const precisionFallback = 'this CPU (x64-avx2) has no instruction for int8';
  await reopen({ model: { precisionFallback } });
  const caller = await new MatteCaller(node).sendFile('12345');
  assert.equal(await caller.ended, undefined);
  assert.equal(caller.result().header?.modelRuns[0]?.precisionFallback, precisionFallback);
  const info = await nodeInfo();
  assert.equal(info.models[0]?.precisionFallback, precisionFallback);
});

it('a result and the node say under what terms each model comes', async () => {
  const terms = (commercialUse: 'no' | 'unclear') => {
    return { commercialUse, reason: `It says ${commercialUse}.`, source: 'https://example.com/' };
  };
  const weights = terms('unclear');
  const trainingData = terms('no');
  const licence = { spdx: 'NOASSERTION', origin: 'https://example.com/', weights, trainingData };
  await reopen({ model: { licence } });
  const caller = await new MatteCaller(node).sendFile('12345');
  assert.equal(await caller.ended, undefined);
  const run = caller.result().header?.modelRuns[0];
  assert.equal(run?.licence, 'NOASSERTION');
  assert.equal(run?.weightsCommercialUse, 'unclear');
  assert.equal(run?.trainingDataCommercialUse, 'no');
  const info = await nodeInfo();
  assert.deepEqual(info.models[0]?.licence, { spdx: 'NOASSERTION', weights, trainingData });
  assert.equal(info.commercialUseRequired, '');
  await reopen({ commercialUse: 'strict' });
  assert.equal((await nodeInfo()).commercialUseRequired, 'strict');
});

describe('admission', () => {
  it('refuses before a byte is sent, and says that another node may take it', async () => {
    await reopen({ limits: { imagesMax: 1 } });
    node.gates.hold('infer');
    const first = await new MatteCaller(node).sendFile('12345');
    await node.gates.reached('infer');
    const second = new MatteCaller(node).send(header());
    const failure = await second.failure();
    assert.equal(failure.code, 'NODE_OVERLOADED');
    assert.equal(failure.status, status.RESOURCE_EXHAUSTED);
    assert.equal(failure.retryable, true);
    assert.deepEqual(second.messages, []);
    node.gates.letGo('infer');
    assert.equal(await first.ended, undefined);
    const third = await new MatteCaller(node).sendFile('12345');
    assert.equal(await third.ended, undefined);
  });

  it('refuses what would wait longer than its header allows, before a byte is sent', async () => {
    node.gates.hold('decode');
    const first = await new MatteCaller(node).sendFile('12345');
    await node.gates.reached('decode');
    // One image before the engine, 100 ms each in the fake.
    const impatient = new MatteCaller(node).send(header({ waitMsMax: 99 }));
    const failure = await impatient.failure();
    assert.equal(failure.code, 'NODE_OVERLOADED');
    assert.equal(failure.status, status.RESOURCE_EXHAUSTED);
    assert.deepEqual(impatient.messages, []);
    const patient = new MatteCaller(node).send(header({ waitMsMax: 100 }));
    await patient.until('admitted');
    patient.call.cancel();
    node.gates.letGo('decode');
    await first.ended;
  });

  it('tells how many are ahead and how long they take', async () => {
    node.gates.hold('decode');
    const first = await new MatteCaller(node).sendFile('12345');
    await node.gates.reached('decode');
    const second = new MatteCaller(node).send(header());
    const admitted = await second.until('admitted');
    assert.equal(admitted.queuePosition, 1);
    // One image before the engine, 100 ms each in the fake.
    assert.equal(admitted.estimatedWaitMs, 100);
    second.call.cancel();
    node.gates.letGo('decode');
    await first.ended;
  });

  it('is closed while the node starts', async () => {
    await reopen({ starting: true });
    const failure = await new MatteCaller(node).send(header()).failure();
    assert.equal(failure.code, 'NODE_UNAVAILABLE');
    assert.equal(failure.status, status.UNAVAILABLE);
  });

  it('is closed while the node drains, and what is in is finished', async () => {
    node.gates.hold('infer');
    const first = await new MatteCaller(node).sendFile('12345');
    await node.gates.reached('infer');
    node.status.drain('shutdown');
    const failure = await new MatteCaller(node).send(header()).failure();
    assert.equal(failure.code, 'NODE_UNAVAILABLE');
    node.gates.letGo('infer');
    assert.equal(await first.ended, undefined);
    await node.matte.untilIdle();
  });

  it('is closed while no engine is ready, and open again after', async () => {
    node.engines.set({ enginesReady: 0 });
    assert.equal((await new MatteCaller(node).send(header()).failure()).code, 'NODE_UNAVAILABLE');
    node.engines.set({ enginesReady: 1 });
    const caller = await new MatteCaller(node).sendFile('12345');
    assert.equal(await caller.ended, undefined);
  });
});
